#pragma once
// A handler's process writes its runs line by line, before it acts. Another process counts them from outside:
//
//   S NS RUN PARTITION EPOCH OFFSET    a handler starts
//   E NS RUN done|stopped              it is about to return; `stopped`: its stop_token was set
//   F NS PARTITION EPOCH               the database has committed this epoch of the partition, and rejects older ones
//
// NS is CLOCK_MONOTONIC in nanoseconds, on one host. Each process has a file FOLDER/PID.journal.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/support/forwarding_store.hpp"

namespace turnstile::test {

inline std::int64_t monotonic_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

/// Thread-safe.
class Journal {
 public:
  explicit Journal(const std::string& folder)
      : file_(::open((folder + "/" + std::to_string(::getpid()) + ".journal").c_str(),
                     O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644)) {
    if (file_ < 0) throw std::runtime_error(folder + ": no journal can be written there");
  }
  ~Journal() { ::close(file_); }
  Journal(const Journal&) = delete;
  Journal& operator=(const Journal&) = delete;

  std::int64_t start(std::int32_t partition, std::int64_t epoch, std::int64_t offset) {
    const std::int64_t run = ++runs_;
    write("S " + std::to_string(monotonic_ns()) + " " + std::to_string(run) + " " + std::to_string(partition) + " " +
          std::to_string(epoch) + " " + std::to_string(offset) + "\n");
    return run;
  }
  void end(std::int64_t run, bool stopped) {
    write("E " + std::to_string(monotonic_ns()) + " " + std::to_string(run) + (stopped ? " stopped\n" : " done\n"));
  }
  void fenced(std::int32_t partition, std::int64_t epoch) {
    write("F " + std::to_string(monotonic_ns()) + " " + std::to_string(partition) + " " + std::to_string(epoch) + "\n");
  }

 private:
  // A single write, so that lines are whole even if the process is killed.
  void write(const std::string& line) const {
    if (::write(file_, line.data(), line.size()) < 0) throw std::runtime_error("the journal cannot be written");
  }
  const int file_;
  std::atomic<std::int64_t> runs_{0};
};

/// A store that records its claims as soon as the database has committed them.
class JournalledStore final : public ForwardingStore {
 public:
  JournalledStore(std::shared_ptr<ports::Store> inner, Journal& journal)
      : ForwardingStore(std::move(inner)), journal_(journal) {}

  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    auto claims = ForwardingStore::claim_partitions(group, partitions, wait);
    for (const auto& claim : claims) journal_.fenced(claim.at.partition, claim.fence.epoch.value);
    return claims;
  }

 private:
  Journal& journal_;
};

}  // namespace turnstile::test
