#pragma once
// Reads the records of a topic without a consumer group, and commits nothing. For tools that compare records with what
// was made of them.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/kafka/broker.hpp"
#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::kafka {

/// A part of a partition.
struct OffsetRange {
  std::int32_t partition = 0;  ///< within the topic
  Offset begin = 0;            ///< the first offset
  Offset end = 0;              ///< 1 past the last offset
  Offset first_kept = 0;       ///< the partition's first offset that the broker still has
};

/// One thread at a time may use it. All calls throw BrokerError if the broker does not answer within `patience`.
class RecordReader {
 public:
  /// Asks the broker for the topic. Throws BrokerError if there is none. The level of isolation is the one in
  /// `settings`: by default records of aborted transactions are left out, as for consumers.
  RecordReader(const Settings& settings, std::string topic, std::shared_ptr<spdlog::logger> logger,
               std::chrono::milliseconds patience = std::chrono::seconds(30));
  ~RecordReader();
  RecordReader(const RecordReader&) = delete;
  RecordReader& operator=(const RecordReader&) = delete;

  /// How many partitions the topic has.
  [[nodiscard]] std::int32_t partitions() const noexcept;
  /// Whether the broker may have deleted records between others, because it keeps only the last one of each key. Throws
  /// BrokerError if it does not tell.
  [[nodiscard]] bool is_compacted() const;
  /// All partitions, each from its first record with a timestamp of `from` or later, up to and without its first record
  /// with a timestamp of `to` or later. Absent: from the first record that is kept, up to the end.
  std::vector<OffsetRange> ranges(std::optional<Timestamp> from, std::optional<Timestamp> to);
  /// Calls `on_records` with all records of the range, in their order. The messages are valid only during the call. If
  /// the broker deletes records of the range meanwhile, it goes on after them. `on_records` returns false to stop.
  void read(const OffsetRange& range, const std::function<bool(std::span<const Message>)>& on_records);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace turnstile::kafka
