#pragma once
// librdkafka's mock broker in this process, for the demo and for fast tests (hazard: mock-broker). It speaks Kafka's
// protocol over loopback, also to other processes, with consumer groups and committed offsets.
// It keeps 5 MiB in each partition, and then drops the oldest records without notice. It stores nothing on disk, and
// creates any topic that a producer writes to. It refuses commits during a rebalance, so handled messages come again. A
// rebalance takes session.timeout.ms less a second, the first one 3 s.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

/// librdkafka's mock broker, in this process.
class MockBroker {
 public:
  /// Throws BrokerError if it cannot listen on 127.0.0.1.
  MockBroker();
  ~MockBroker();
  MockBroker(const MockBroker&) = delete;
  MockBroker& operator=(const MockBroker&) = delete;

  /// "127.0.0.1:34567"
  [[nodiscard]] std::string bootstrap_servers() const;
  /// Settings for its clients: its address, short fetch waits, and a session timeout that makes rebalances quick.
  [[nodiscard]] Settings settings() const;
  /// Throws BrokerError if the topic exists.
  void create_topic(const std::string& name, std::int32_t partitions);
  /// Refuses produced records from now on (no right to write), until allow_produce().
  void refuse_produce();
  /// Answers "request timed out" to the next so many requests with produced records, or until allow_produce(). Their
  /// producers do not know whether the broker has the records.
  void time_out_produce(std::size_t requests = kManyRequests);
  /// Ends the refusal or the timeouts of produced records.
  void allow_produce();
  /// Refuses members of any group from now on (no right), until allow_members().
  void refuse_members();
  /// Ends the refusal of members.
  void allow_members();
  /// The broker becomes unavailable. It keeps its data.
  void down();
  /// The broker is available again.
  void up();

 private:
  static constexpr std::size_t kManyRequests = 1'000;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile::kafka
