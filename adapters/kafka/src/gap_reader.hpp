#pragma once
// Finds out whether records follow an offset at which a consumer waits.

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client.hpp"
#include "turnstile/types.hpp"

namespace turnstile::kafka {

/// Offsets without a record, from `from` up to but without `to`: markers of transactions, or records that were aborted
/// or compacted. There never will be a record at one of them.
struct Gap {
  TopicPartition at;
  Offset from = 0;
  Offset to = 0;
};

/// Reads partitions from an offset up to their end, with a client of its own, which belongs to no group. It never
/// waits for a broker. Not thread-safe.
class GapReader {
 public:
  /// `settings`: the consumer's. The client is opened with the first question.
  explicit GapReader(Settings settings) : settings_(std::move(settings)) {}
  ~GapReader();
  GapReader(const GapReader&) = delete;
  GapReader& operator=(const GapReader&) = delete;

  /// Begins to read. False: too many partitions are being read, or this one is, or no client can be opened.
  bool ask(const TopicPartition& at, Offset from);
  /// The gaps found since the last call. Where a record follows, or no broker answers for some seconds, there is none.
  std::vector<Gap> found();
  /// How many partitions are being read.
  [[nodiscard]] std::size_t being_read() const noexcept { return readings_.size(); }

 private:
  using Clock = std::chrono::steady_clock;
  struct Reading {
    Topic topic;
    Offset from;
    Clock::time_point until;
  };

  bool open();
  void end(std::map<TopicPartition, Reading>::iterator reading);

  const Settings settings_;
  std::shared_ptr<Client> client_;
  Clock::time_point open_again_{};
  Queue queue_;
  std::map<TopicPartition, Reading> readings_;
};

}  // namespace turnstile::kafka
