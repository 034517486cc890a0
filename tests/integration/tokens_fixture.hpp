#pragma once
// Consumers under a limit that counts over all of them, on the real PostgreSQL and the real Apache Kafka. The test
// counts from outside how many handlers run at once (support/outside.hpp). It uses what handlers write about
// themselves, never a report of the limiter.

#include <spdlog/spdlog.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/journal.hpp"
#include "tests/support/outside.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"

namespace turnstile::test {

struct LimitedOptions {
  int limit = 4;
  std::chrono::milliseconds lease{60'000};
  bool strict = false;
  int session_timeout_ms = 6'000;
  int work_ms = 50;
};

class LimitedFixture {
 public:
  explicit LimitedFixture(const LimitedOptions& options)
      : options_(options),
        world_(WorldOptions{.partitions = 6,
                            .session_timeout_ms = options.session_timeout_ms,
                            .handler_timeout = std::to_string(options.session_timeout_ms * 2 / 3) + "ms"}) {}

  /// A consumer process that keeps a journal.
  Process consumer() { return consumer(options_.limit, options_.lease); }
  Process consumer(int limit, std::chrono::milliseconds lease) {
    return world_.consumer(toml(limit, lease),
                           {{"EFFECT_MS", std::to_string(options_.work_ms)}, {"JOURNAL", world_.folder()}});
  }
  [[nodiscard]] std::string toml(int limit, std::chrono::milliseconds lease) const {
    return world_.toml("order = \"none\"\nlimit = " + std::to_string(limit), "lock_timeout = \"2s\"\n" + limits(lease));
  }
  [[nodiscard]] std::string limits(std::chrono::milliseconds lease) const {
    return "[limits]\nlease = \"" + std::to_string(lease.count()) +
           "ms\"\nstrict = " + (options_.strict ? "true" : "false") + "\n";
  }
  /// Another member of the domain, in this process, which uses no permits.
  [[nodiscard]] std::shared_ptr<TokenDomain> member() const {
    auto domain = kafka::open_limiters({{"bootstrap.servers", kafka_servers()}}, {.name = token_topic()},
                                       {.client = "test", .lease = options_.lease}, make_logger({"off", "text"}));
    if (!domain->wait_until_joined(std::chrono::seconds(20))) ADD_FAILURE() << "not joined";
    return domain;
  }

  /// Kills the process with kill -9, and remembers when.
  void kill(Process& process) {
    process.signal(SIGKILL);
    process.wait(std::chrono::seconds(5));
    killed_[process.pid()] = monotonic_ns();
  }
  [[nodiscard]] Nanos killed_at(const Process& process) const { return killed_.at(process.pid()); }

  [[nodiscard]] Outside outside() const { return Outside(world_.folder(), killed_); }
  [[nodiscard]] std::string token_topic() const { return world_.topic() + ".tokens"; }
  [[nodiscard]] std::vector<LoggedEvent> token_log() const { return read_token_topic(token_topic()); }

  /// Waits until this process runs `count` handlers at once after `since`. Returns when it did.
  [[nodiscard]] std::optional<Nanos> runs(const Process& process, int count, Nanos since,
                                          std::chrono::milliseconds timeout = std::chrono::seconds(40)) const {
    std::optional<Nanos> when;
    static_cast<void>(eventually(
        [&] {
          when = outside().first_with(count, {.from = since, .pid = process.pid()});
          return when.has_value();
        },
        timeout));
    return when;
  }
  /// Waits until the process begins a run after `since`. Returns when it did.
  [[nodiscard]] std::optional<Nanos> begins(const Process& process, Nanos since) const {
    std::optional<Nanos> when;
    static_cast<void>(eventually([&] { return (when = outside().first_begin(process.pid(), since)).has_value(); },
                                 std::chrono::seconds(60)));
    return when;
  }
  /// Waits until each process runs its share of the limit. The share is the same for all.
  [[nodiscard]] bool all_at_work(const std::vector<const Process*>& processes) const {
    const int share = options_.limit / static_cast<int>(processes.size());
    return eventually(
        [&] {
          const Outside now = outside();
          for (const Process* process : processes) {
            if (now.running(process->pid()) != share) return false;
          }
          return true;
        },
        std::chrono::seconds(60));
  }
  /// The most handlers that ran at once and that count. A run that the database refuses does not count, nor does a run
  /// after the process's own deadline.
  [[nodiscard]] int most_that_counts() const {
    const Outside all = outside();
    const auto log = token_log();
    std::map<pid_t, std::vector<Nanos>> passed;
    for (const HandlerRun& run : all.runs()) passed.try_emplace(run.pid);
    for (auto& [pid, times] : passed) times = deadlines(log, pid, options_.lease);
    return all.most({.harmless = [&](const HandlerRun& run) {
      auto harmless = all.fenced_at(run);
      for (const Nanos deadline : passed.at(run.pid)) {
        if (deadline >= run.begin && (!harmless || deadline < *harmless)) harmless = deadline;
      }
      return harmless;
    }});
  }

  World& operator*() { return world_; }
  World* operator->() { return &world_; }

 private:
  const LimitedOptions options_;
  World world_;
  std::map<pid_t, Nanos> killed_;
};

inline double seconds(Nanos nanos) { return static_cast<double>(nanos) / 1e9; }

/// Prints the measured time to the output of the test.
inline void tell(const std::string& what, Nanos nanos) {
  std::cout << "[ measured ] " << what << ": " << seconds(nanos) << " s" << std::endl;
}

constexpr Nanos kSecond_ns = 1'000'000'000;

}  // namespace turnstile::test
