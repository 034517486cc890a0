#pragma once
// The services outside of the processes: the token log, the databases, and the coordinators of the groups.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "tests/simulation/checks.hpp"
#include "tests/simulation/random.hpp"
#include "tokens/event.hpp"
#include "turnstile/ports/token_log.hpp"

namespace turnstile::simulation {

class World;
class Process;

/// Records in the order of writing, and snapshots. The judge sees each record at once.
class SharedLog {
 public:
  struct Record {
    std::string bytes;
    tokens::Event event;  ///< decoded from the bytes
  };

  explicit SharedLog(World& world) : world_(world) {}

  void append(std::string bytes);
  /// Includes deleted records, because late copies come from anywhere.
  [[nodiscard]] const Record& at(tokens::Position position) const {
    return records_[static_cast<std::size_t>(position)];
  }
  [[nodiscard]] tokens::Position begin() const { return begin_; }
  [[nodiscard]] tokens::Position end() const { return static_cast<tokens::Position>(records_.size()); }
  void trim(tokens::Position below);

  std::vector<std::string> snapshots;  ///< oldest first

 private:
  World& world_;
  tokens::Position begin_ = 0;
  std::vector<Record> records_;
};

/// The fences of partitions, which each store counts for each group. An owner increments a fence before it starts
/// anything. A commit with an older fence is rejected.
class Databases {
 public:
  struct Key {
    std::string store, group;
    int partition = 0;
    auto operator<=>(const Key&) const = default;
  };
  std::uint64_t count_up(const Key& key) { return ++fences_[key]; }
  [[nodiscard]] std::uint64_t fence(const Key& key) const {
    const auto known = fences_.find(key);
    return known == fences_.end() ? 0 : known->second;
  }

 private:
  std::map<Key, std::uint64_t> fences_;
};

/// A consumer group. All groups read the same topic.
struct Group {
  std::string name;
  std::string store;  ///< empty: no database
};

/// Assigns partitions to processes: Kafka's group protocol as a consumer sees it, with its delays.
class Coordinator {
 public:
  Coordinator(World& world, int group, int partitions, std::uint64_t seed)
      : world_(world), group_(group), partitions_(partitions), random_(seed) {}

  /// Checks every 200 ms which processes are there. A process that was silent for its session is not.
  void look();
  void rebalance();

 private:
  World& world_;
  const int group_;
  const int partitions_;
  Random random_;
  std::vector<Process*> members_;
  std::uint64_t generation_ = 0;
  bool incomplete_ = false;  ///< the last rebalance left out a process
};

/// A process's connection to the log, behind the port of the shipped code. Records of one producer are written in the
/// order of sending. After a failure all records that were not written yet have failed too, until the host learns of it
/// and uses another producer. A record that was reported as failed may still be written at any later time.
class ProcessLog final : public ports::TokenLog {
 public:
  ProcessLog(World& world, Process& process) : world_(world), process_(process) {}

  std::optional<Snapshot> snapshot(std::int64_t before) override;
  std::int64_t begin() override;
  std::int64_t end() override;
  void seek(std::int64_t position) override { next_ = position; }
  std::vector<Record> read(std::chrono::milliseconds timeout) override;
  void append(std::string bytes) override;
  bool failed() override;
  [[nodiscard]] std::string why_failed() const override { return "chaos"; }
  void save(std::int64_t position, std::string snapshot) override;
  [[nodiscard]] std::int64_t saved() const override { return saved_; }
  void trim(std::int64_t below) override;
  void wake() noexcept override;
  void flush(std::chrono::milliseconds) override {}
  [[nodiscard]] std::string name() const override { return "the token log"; }

  /// Records that have not left the process yet are lost.
  void close() { closed_ = true; }

 private:
  void must_be_reached() const;
  void deliver(const std::string& bytes);
  void let_go();
  void fail(std::int64_t report_after);
  void report_later(std::int64_t after);

  World& world_;
  Process& process_;
  std::int64_t next_ = 0;
  std::int64_t saved_ = -1;
  std::int64_t last_arrival_ = 0;
  std::deque<std::string> held_back_;  ///< by a pause
  std::uint64_t producer_ = 1;         ///< increases with each replacement
  bool broken_ = false;                ///< this producer writes nothing more
  bool failed_ = false;
  bool closed_ = false;
  std::int64_t unread_until_ = 0;  ///< until when a record cannot be read
};

}  // namespace turnstile::simulation
