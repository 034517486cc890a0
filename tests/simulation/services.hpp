#pragma once
// What stands outside the processes: the token log, the database and the group's coordinator.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "simulation/checks.hpp"
#include "simulation/random.hpp"
#include "tokens/event.hpp"

namespace turnstile::simulation {

class World;
class Process;

/// Records in the order in which they were written. The judge sees each one at once.
class TokenLog {
 public:
  struct Record {
    std::string bytes;
    tokens::Event event;  ///< what decode() makes of the bytes
  };
  struct Snapshot {
    tokens::Position position = tokens::kNowhere;
    std::string bytes;
  };

  explicit TokenLog(World& world) : world_(world) {}

  void append(std::string bytes);
  [[nodiscard]] const Record& at(tokens::Position position) const {
    return records_[static_cast<std::size_t>(position)];
  }
  [[nodiscard]] tokens::Position end() const { return static_cast<tokens::Position>(records_.size()); }

  Snapshot newest;  ///< of those that processes have stored

 private:
  World& world_;
  std::vector<Record> records_;
};

/// The fence of each partition. An owner counts it up before it starts anything; who commits with an older one is refused.
class Database {
 public:
  std::uint64_t count_up(int partition) { return ++fences_[partition]; }
  [[nodiscard]] std::uint64_t fence(int partition) const {
    const auto known = fences_.find(partition);
    return known == fences_.end() ? 0 : known->second;
  }

 private:
  std::map<int, std::uint64_t> fences_;
};

/// Says which process has which partition: Kafka's group protocol as seen from a consumer, with its lateness.
class Coordinator {
 public:
  Coordinator(World& world, int partitions, std::uint64_t seed)
      : world_(world), partitions_(partitions), random_(seed) {}

  /// Looks who is there, every 200 ms; whoever has been silent for its session is not.
  void look();
  void rebalance();
  [[nodiscard]] int partitions() const { return partitions_; }
  [[nodiscard]] std::size_t members() const { return members_.size(); }

 private:
  World& world_;
  const int partitions_;
  Random random_;
  std::vector<Process*> members_;
  std::uint64_t generation_ = 0;
  bool incomplete_ = false;  ///< somebody was left out of the last one
};

/// The producer of one process. Within an epoch records are written in the order of sending. After a failure everything that was
/// not yet written has failed with it, and a record that was reported as failed may be written all the same, at any later time.
class Writer {
 public:
  Writer(World& world, Process& process) : world_(world), process_(process) {}

  void send(const tokens::Event& event);
  /// What has not left the process yet is lost.
  void close() { closed_ = true; }

 private:
  void deliver(const std::string& bytes);
  void let_go();
  void fail(std::uint32_t epoch, std::int64_t report_after);

  World& world_;
  Process& process_;
  std::int64_t last_arrival_ = 0;
  std::deque<std::string> held_back_;  ///< by a pause
  std::uint64_t broken_member_ = 0;
  std::uint32_t broken_epoch_ = 0;
  bool closed_ = false;
};

}  // namespace turnstile::simulation
