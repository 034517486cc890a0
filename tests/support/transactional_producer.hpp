#pragma once
// A producer that writes in transactions to the Apache Kafka of the integration tests.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <memory>
#include <string>
#include <utility>

#include "tests/support/world.hpp"

namespace turnstile::test {

class TransactionalProducer {
 public:
  explicit TransactionalProducer(const std::string& topic) : TransactionalProducer(topic, topic) {}
  TransactionalProducer(const std::string& id, std::string topic) : topic_(std::move(topic)) {
    auto* conf = rd_kafka_conf_new();
    for (const auto& [key, value] : {std::pair<const char*, std::string>{"bootstrap.servers", kafka_servers()},
                                     {"transactional.id", id + "-producer"}})
      rd_kafka_conf_set(conf, key, value.c_str(), nullptr, 0);
    handle_.reset(rd_kafka_new(RD_KAFKA_PRODUCER, conf, nullptr, 0));
    expect(rd_kafka_init_transactions(handle_.get(), 30'000));
  }
  void begin() { expect(rd_kafka_begin_transaction(handle_.get())); }
  /// Returns once the broker has them.
  void send(int n, int partition = 0) {
    for (int i = 0; i < n; ++i)
      rd_kafka_producev(handle_.get(), RD_KAFKA_V_TOPIC(topic_.c_str()), RD_KAFKA_V_PARTITION(partition),
                        RD_KAFKA_V_VALUE(const_cast<char*>("x"), 1), RD_KAFKA_V_END);
    EXPECT_EQ(rd_kafka_flush(handle_.get(), 30'000), RD_KAFKA_RESP_ERR_NO_ERROR);
  }
  /// A transaction of so many records.
  void write(int n) {
    begin();
    send(n);
    commit();
  }
  void commit() { expect(rd_kafka_commit_transaction(handle_.get(), 30'000)); }
  void abort() { expect(rd_kafka_abort_transaction(handle_.get(), 30'000)); }

 private:
  static void expect(rd_kafka_error_t* error) {
    EXPECT_EQ(error, nullptr) << rd_kafka_error_string(error);
    if (error != nullptr) rd_kafka_error_destroy(error);
  }

  std::string topic_;
  std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> handle_{nullptr, &rd_kafka_destroy};
};

}  // namespace turnstile::test
