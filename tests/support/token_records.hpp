#pragma once
// Reads the token log in Kafka without the framework's own adapter. In a header, for programs that link no test
// library.

#include <librdkafka/rdkafka.h>

#include <array>
#include <cstdint>
#include <ctime>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "tokens/wire.hpp"

namespace turnstile::test {

struct LoggedEvent {
  tokens::Position position = 0;
  std::int64_t created_ns = 0;  ///< when its writer wrote it, on CLOCK_MONOTONIC; the broker stores milliseconds
  std::string bytes;
  tokens::Event event;
};

/// CLOCK_REALTIME minus CLOCK_MONOTONIC.
inline std::int64_t wall_offset_ns() {
  timespec wall{}, steady{};
  ::clock_gettime(CLOCK_REALTIME, &wall);
  ::clock_gettime(CLOCK_MONOTONIC, &steady);
  return (wall.tv_sec - steady.tv_sec) * 1'000'000'000 + wall.tv_nsec - steady.tv_nsec;
}

/// A plain client of the brokers.
inline std::unique_ptr<rd_kafka_t, decltype(&rd_kafka_destroy)> plain_client(rd_kafka_type_t type,
                                                                             const std::string& brokers) {
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  std::array<char, 256> why{};
  if (rd_kafka_conf_set(conf, "bootstrap.servers", brokers.c_str(), why.data(), why.size()) != RD_KAFKA_CONF_OK)
    throw std::runtime_error(why.data());
  rd_kafka_t* made = rd_kafka_new(type, conf, why.data(), why.size());
  if (made == nullptr) throw std::runtime_error(why.data());
  return {made, &rd_kafka_destroy};
}

/// Reads partition 0 from its beginning. Calls `take` with each record, and with null if there was none for 100 ms.
/// `take` returns whether to continue. Errors are ignored, because a broker may be unavailable for a while.
inline void tail_token_topic(const std::string& brokers, const std::string& topic,
                             const std::function<bool(const LoggedEvent*)>& take) {
  const auto consumer = plain_client(RD_KAFKA_CONSUMER, brokers);
  const std::unique_ptr<rd_kafka_topic_t, decltype(&rd_kafka_topic_destroy)> handle{
      rd_kafka_topic_new(consumer.get(), topic.c_str(), nullptr), &rd_kafka_topic_destroy};
  if (rd_kafka_consume_start(handle.get(), 0, RD_KAFKA_OFFSET_BEGINNING) != 0)
    throw std::runtime_error(topic + ": cannot be read");
  const std::int64_t offset_ns = wall_offset_ns();
  for (bool on = true; on;) {
    const std::unique_ptr<rd_kafka_message_t, decltype(&rd_kafka_message_destroy)> record{
        rd_kafka_consume(handle.get(), 0, 100), &rd_kafka_message_destroy};
    if (!record || record->err) {
      on = take(nullptr);
      continue;
    }
    LoggedEvent event{.position = record->offset,
                      .created_ns = rd_kafka_message_timestamp(record.get(), nullptr) * 1'000'000 - offset_ns,
                      .bytes = std::string(static_cast<const char*>(record->payload), record->len),
                      .event = {}};
    event.event = tokens::decode(event.bytes);
    on = take(&event);
  }
  rd_kafka_consume_stop(handle.get(), 0);
}

}  // namespace turnstile::test
