#pragma once
// A consumer on the in-memory broker and store, for tests of the engine.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {

using namespace std::chrono_literals;
using testing::MemoryBroker;
using testing::MemoryInbox;

/// The test opens it, and handlers wait for it. The wait is bounded, so that a failing test ends.
class Door {
 public:
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  bool wait(std::chrono::milliseconds bound = 20s) {
    std::unique_lock lock(mutex_);
    return opened_.wait_for(lock, bound, [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable opened_;
  bool open_ = false;
};

class Counts final : public Observer {
 public:
  void on_batch(const BatchReport& r) noexcept override {
    done += r.done;
    duplicates += r.duplicates;
    unclaimed += r.unclaimed;
  }
  void on_store(bool available) noexcept override { ++(available ? store_back : store_lost); }
  void on_stall(const MessageReport& r) noexcept override { stalled_at = r.offset; }
  void on_retry(const MessageReport&) noexcept override { ++retries; }
  std::atomic<std::int64_t> done{0}, duplicates{0}, retries{0};
  std::atomic<int> store_lost{0}, store_back{0};
  std::atomic<std::int64_t> unclaimed{0};
  std::atomic<Offset> stalled_at{-1};
};

class EngineTest : public ::testing::Test {
 protected:
  void topic(const std::string& name, int partitions) { broker->create_topic(name, partitions); }
  void publish(const std::string& to, int n, const std::string& prefix = "m", const std::string& payload = "p") {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message;
      message.topic = to;
      message.partition = -1;
      message.key = std::to_string(i % 7);
      message.payload = payload;
      message.headers = {{"message-id", prefix + std::to_string(i)}};
      broker->produce(message);
    }
  }
  Config config() {
    Config c;
    c.consumer.commit_interval = 20ms;
    c.consumer.drain_timeout = 5s;
    return c;
  }
  std::unique_ptr<Consumer> consumer(const std::string& to, Pipeline pipeline, const Config& c) {
    auto app = std::make_unique<Consumer>(c, Backends{broker, inbox});
    app->topic(to, std::move(pipeline)).observe(counts).handle_signals(false).logger(logger);
    return app;
  }
  /// Runs the consumer on a thread until it is stopped. If it throws, the text of the exception goes to `failure`.
  std::thread start(Consumer& app) {
    return std::thread([this, &app] {
      try {
        app.run();
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        failure = e.what();
      }
    });
  }
  bool all_committed(const std::string& of, int partitions) {
    std::map<int, Offset> ends;
    for (const auto& record : broker->records(of)) ends[record.partition] = record.offset + 1;
    for (int p = 0; p < partitions; ++p) {
      if (ends.contains(p) && broker->committed({of, p}) != ends[p]) return false;
    }
    return true;
  }
  std::string log_text() {
    logger->flush();
    return text.str();
  }

  std::shared_ptr<MemoryBroker> broker = std::make_shared<MemoryBroker>();
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();
  std::shared_ptr<Counts> counts = std::make_shared<Counts>();
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
  std::mutex mutex;
  std::string failure;
};

inline const auto kEffect = [](const Message& message, Context& context) {
  context.tx().exec("INSERT", message.header("message-id").value_or(""));
};

}  // namespace turnstile::test
