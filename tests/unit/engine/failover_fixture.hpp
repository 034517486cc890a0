#pragma once
// A consumer or a PollLoop on the in-memory broker, with a store that can be set back to an earlier state.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {

using namespace std::chrono_literals;
using testing::MemoryBroker;
using testing::MemoryInbox;

constexpr std::int32_t kSlot = 1;  // the slot of the only partition

class Failover : public ::testing::Test {
 protected:
  void SetUp() override {
    broker->create_topic("t", 1);
    broker->create_topic("t.dlq", 1);
    config.consumer.commit_interval = 10ms;
    config.consumer.drain_timeout = 5s;
  }
  void TearDown() override { stop(); }

  void publish(int n) {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = 0;
      message.key = std::to_string(published % 5);
      message.payload = std::to_string(published++);
      message.headers = {{"message-id", "m" + *message.payload}};
      broker->produce(message);
    }
  }
  /// Makes an effect in the transaction if there is one, and notes the run.
  auto handler() {
    return Pipeline([this](const Message& message, Context& context) {
      {
        const std::lock_guard lock(mutex);
        ++runs[std::stoi(std::string(message.text()))];
      }
      if (act) act(message);
      if (transactions) context.tx().exec("INSERT", std::string(message.text()));
    });
  }
  /// `store`: `inbox`, or one that forwards to it.
  void start(Pipeline pipeline, std::shared_ptr<ports::Store> store = nullptr) {
    app = std::make_unique<Consumer>(config, Backends{broker, store ? std::move(store) : inbox});
    app->topic("t", std::move(pipeline) | dead_letter()).handle_signals(false).logger(logger);
    thread = std::thread([this] {
      try {
        app->run();
      } catch (const std::exception& e) {
        const std::lock_guard lock(mutex);
        failure = e.what();
      }
    });
  }
  void stop() {
    if (!app) return;
    app->stop();
    thread.join();
    app.reset();
  }
  /// All ten are settled.
  void publish_ten_of_which_a_replica_has_three() {
    publish(3);
    ASSERT_TRUE(eventually([&] { return watermark_is(3); }));
    replica_of_three = inbox->replica();
    publish(7);
    ASSERT_TRUE(eventually([&] { return committed(10); }));
  }
  /// With an empty broker and an empty store.
  void start_over() {
    stop();
    broker = std::make_shared<MemoryBroker>();
    inbox = std::make_shared<MemoryInbox>();
    published = 0;
    text.clear();
    SetUp();
  }
  /// How many effects each message has in the database, in the order of the messages.
  std::vector<int> effects() {
    std::vector<int> all(static_cast<std::size_t>(published));
    for (const auto& statement : inbox->committed())
      ++all[static_cast<std::size_t>(std::stoi(*statement.params.at(0)))];
    return all;
  }
  std::vector<int> all_runs() {
    const std::lock_guard lock(mutex);
    std::vector<int> all(static_cast<std::size_t>(published));
    for (const auto& [which, times] : runs) all[static_cast<std::size_t>(which)] = times;
    return all;
  }
  bool all_took_effect() {
    const auto made = effects();
    return std::all_of(made.begin(), made.end(), [](int times) { return times > 0; });
  }
  bool watermark_is(Offset offset) { return inbox->watermark(kSlot) == offset; }
  bool committed(Offset offset) { return broker->committed({"t", 0}) == offset; }
  std::string log_text() {
    logger->flush();
    return text.str();
  }

  Config config;
  std::shared_ptr<MemoryBroker> broker = std::make_shared<MemoryBroker>();
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();
  std::unique_ptr<Consumer> app;
  std::thread thread;
  MemoryInbox::Replica replica_of_three;
  int published = 0;
  bool transactions = true;
  std::function<void(const Message&)> act;
  std::mutex mutex;
  std::map<int, int> runs;
  std::string failure;
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
};

}  // namespace turnstile::test
