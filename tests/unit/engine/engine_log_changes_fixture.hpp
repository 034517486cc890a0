#pragma once
// A consumer whose topics are deleted and created again, or truncated. The test sees which messages ran.

#include <atomic>
#include <functional>
#include <mutex>
#include <set>
#include <string>

#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile::test {

class EngineLogs : public EngineTest {
 protected:
  /// A pipeline that counts the messages that ran, by payload.
  Pipeline noting(Pipeline (*over)(Pipeline)) {
    return over(Pipeline([this](const Message& message, Context&) {
      if (before_each) before_each();
      const std::lock_guard lock(runs_mutex);
      runs.insert(std::string(message.text()));
    }));
  }
  std::multiset<std::string> ran() {
    const std::lock_guard lock(runs_mutex);
    return runs;
  }
  bool ran_all(const std::string& prefix, int n, int from = 0) {
    const auto all = ran();
    for (int i = from; i < n; ++i) {
      if (!all.contains(prefix + std::to_string(i))) return false;
    }
    return true;
  }
  static OwnedMessage message_of(const std::string& to, const std::string& payload) {
    OwnedMessage message;
    message.topic = to;
    message.partition = 0;
    message.payload = payload;
    message.headers = {{"message-id", payload}};
    return message;
  }
  void produce(int n, const std::string& prefix, int from = 0, const std::string& to = "t") {
    for (int i = from; i < n; ++i) broker->produce(message_of(to, prefix + std::to_string(i)));
  }
  /// Deletes the topic and creates it again with `n` records, before any consumer notices.
  void replace(int n, const std::string& prefix = "another-", const std::string& name = "t") {
    broker->replace_topic(name, [&](const auto& append) {
      for (int i = 0; i < n; ++i) append(message_of(name, prefix + std::to_string(i)));
    });
  }
  /// 30 messages. A handler that comes after the first five waits for `door`.
  void produce_and_hold_the_sixth() {
    topic("t", 1);
    produce(30, "m");
    before_each = [this] {
      if (++begun > 5) door.wait();
    };
  }
  /// The log is cut off at 20 and gets other records, and the consumer finds them.
  void cut_off_while_the_sixth_runs() {
    ASSERT_TRUE(eventually([&] { return begun > 5 && broker->committed({"t", 0}) == 5; })) << log_text();
    broker->truncate({{"t", 0}, 20});
    produce(40, "instead-", 20);
    ASSERT_TRUE(eventually([&] { return log_text().find("Kafka may have another topic") != std::string::npos; }));
  }
  Door door;
  std::atomic<int> begun{0};
  std::function<void()> before_each;
  std::multiset<std::string> runs;
  std::mutex runs_mutex;
};

}  // namespace turnstile::test
