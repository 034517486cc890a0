#pragma once
// A record to the broker and back, for comparison with a permit that must be requested. The producer is idempotent and
// does not linger, the consumer is running, and the topic has one partition.

#include <librdkafka/rdkafka.h>

#include <string>

namespace bench {

class RoundTrip {
 public:
  /// Creates the topic.
  RoundTrip(const std::string& brokers, std::string topic);
  ~RoundTrip();
  RoundTrip(const RoundTrip&) = delete;
  RoundTrip& operator=(const RoundTrip&) = delete;

  /// Returns when the record has been read.
  void once();

 private:
  const std::string topic_;
  rd_kafka_t* producer_ = nullptr;
  rd_kafka_t* consumer_ = nullptr;
};

}  // namespace bench
