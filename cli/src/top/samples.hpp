#pragma once
// What `turnstile top` reads from Kafka, the token log and PostgreSQL. Pure: values only.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/ports/claims.hpp"
#include "turnstile/ports/outbox.hpp"
#include "turnstile/ports/pauses.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::cli::top {

/// The time since any fixed moment.
using Moment = std::chrono::milliseconds;

/// One partition. A value that the broker did not report is absent.
struct PartitionSample {
  std::optional<Offset> committed{};  ///< by the group; absent: it has committed nothing
  std::optional<Offset> begin{};      ///< of the first record
  std::optional<Offset> end{};        ///< after the last record
};

struct TopicSample {
  std::string topic;
  bool exists = true;
  std::vector<PartitionSample> partitions{};  ///< by number
};

struct KafkaSample {
  Moment at{0};  ///< when the broker answered
  std::vector<TopicSample> topics{};
};

struct TokenSample {
  std::string log;  ///< the log's name, for people
  PermitsView permits{};
};

/// Dead letters that were not replayed. Group and topic are empty if the database no longer knows the partition.
struct DeadSample {
  std::string group, topic;
  std::int64_t count = 0;
};

struct DatabaseSample {
  ports::ClaimCounts claims{};
  ports::OutboxLag outbox{};
  std::vector<DeadSample> dead{};
  std::vector<ports::Pause> pauses{};
};

/// Whether a source answers.
struct Source {
  enum class State : std::uint8_t { asking, ok, off, unavailable };
  State state = State::asking;
  std::string why{};    ///< off, unavailable: the reason; asking: what is known
  Moment answered{-1};  ///< when it answered last; -1: never
  Moment moved{0};      ///< when it was asked first, or made progress last
};

}  // namespace turnstile::cli::top
