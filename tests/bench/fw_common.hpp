#pragma once
// The common part of the framework's benchmarks: a Consumer's configuration, and an observer that counts settled
// messages and stops the Consumer at the end.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <string>

#include "tests/bench/bench_common.hpp"
#include "turnstile/turnstile.hpp"

namespace bench {

/// A group that no earlier run has used, from the topic's beginning. Nothing is tuned: it measures the defaults.
inline turnstile::Config plain_config(const std::string& brokers, const std::string& group) {
  turnstile::Config config;
  config.kafka["bootstrap.servers"] = brokers;
  config.kafka["group.id"] = unique_name(group);
  config.kafka["auto.offset.reset"] = "earliest";
  config.log.level = "warn";
  return config;
}

/// Serves metrics, if the program is started with --admin-port.
inline void add_admin(turnstile::Config& config, Args& args) {
  if (const auto port = args.number("admin-port", 0); port != 0)
    config.admin.listen = "127.0.0.1:" + std::to_string(port);
}

/// Sends spans, if the program is started with --traces-to URL. One message in 100 begins a trace.
inline void add_tracing(turnstile::Config& config, Args& args) {
  config.tracing.endpoint = args.text("traces-to", "");
  if (!config.tracing.endpoint.empty() && !config.tracing.target()) die("--traces-to: no URL of a collector");
}

inline turnstile::PostgresSettings postgres_settings(const std::string& url, const std::string& schema) {
  turnstile::PostgresSettings settings;
  settings.url = turnstile::Secret(url);
  settings.schema = schema;
  return settings;
}

/// As in a configuration file. Without `message_id`, the mode uses its default.
inline turnstile::TopicSettings topic_settings(const std::string& mode, const std::string& message_id) {
  std::string file =
      "[kafka]\n\"bootstrap.servers\" = \"-\"\n[postgres]\nurl = \"postgresql://-\"\n[topics.all]\nmode = \"" + mode +
      "\"\n";
  if (!message_id.empty()) file += "message_id = \"" + message_id + "\"\n";
  try {
    return turnstile::Config::parse(file, "the benchmark's settings").topics.at("all");
  } catch (const std::exception& e) {
    die(e.what());
  }
}

/// Counts settled messages. The clock runs from the start of the first batch to the end of the last one.
class Progress : public turnstile::Observer {
 public:
  Progress(turnstile::Consumer& app, std::int64_t wanted) : app_(app), wanted_(wanted) {}

  void on_batch(const turnstile::BatchReport& batch) noexcept override {
    const std::int64_t end_ns = now_ns();
    note_start(end_ns - batch.took.count());
    duplicates_ += batch.duplicates;
    failed_ += batch.retried + batch.dead;
    const std::int64_t count = batch.done + batch.skipped + batch.duplicates + batch.dead;
    if ((settled_ += count) >= wanted_ && end_ns_.exchange(end_ns) == 0) app_.stop();
  }

  [[nodiscard]] std::int64_t settled() const { return settled_; }
  [[nodiscard]] std::int64_t duplicates() const { return duplicates_; }
  [[nodiscard]] std::int64_t failed() const { return failed_; }
  [[nodiscard]] double seconds() const {
    if (settled_ < wanted_)
      die("stopped after " + std::to_string(settled_) + " of " + std::to_string(wanted_) + " messages");
    return static_cast<double>(end_ns_ - start_ns_) / 1e9;
  }

 private:
  void note_start(std::int64_t at_ns) noexcept {
    std::int64_t known_ns = start_ns_.load(std::memory_order_relaxed);
    while (at_ns < known_ns && !start_ns_.compare_exchange_weak(known_ns, at_ns)) {
    }
  }

  turnstile::Consumer& app_;
  std::int64_t wanted_;
  std::atomic<std::int64_t> settled_{0};
  std::atomic<std::int64_t> duplicates_{0};
  std::atomic<std::int64_t> failed_{0};
  std::atomic<std::int64_t> start_ns_{std::numeric_limits<std::int64_t>::max()};
  std::atomic<std::int64_t> end_ns_{0};
};

/// Runs to the end. An error ends the program with the framework's message.
inline void run(turnstile::Consumer& app) {
  app.handle_signals(false);
  try {
    app.run();
  } catch (const std::exception& e) {
    die(std::string("the framework: ") + e.what());
  }
}

}  // namespace bench
