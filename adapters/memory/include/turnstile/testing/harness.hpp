#pragma once
// Runs a handler with its decorators as in production, but without Kafka and PostgreSQL. The retries and the decisions
// of the inbox are the real ones. The broker and the store are in memory. Everything runs on the caller's thread.
//
//   turnstile::testing::Harness h{charge | transactional() | retry(exponential{1ms, 3}) | dead_letter()};
//   EXPECT_EQ(h.deliver(turnstile::testing::message("order-1").payload("42")), turnstile::Settled::done);
//   EXPECT_EQ(h.redeliver(), turnstile::Settled::duplicate);
//   EXPECT_EQ(h.statements().size(), 1u);

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/handler.hpp"
#include "turnstile/poll_loop.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

/// Tests of handlers without Kafka and PostgreSQL; the twins of the adapters.
namespace turnstile::testing {

/// Builds a message to deliver, in one expression. Its id is sent in the header message-id.
class MessageBuilder {
 public:
  /// Starts a message with this id in the header message-id, or without the header if there is no id.
  explicit MessageBuilder(std::optional<std::string> id) {
    if (id) header("message-id", std::move(*id));
  }
  /// Sets the payload.
  MessageBuilder& payload(std::string text) {
    record_.payload = std::move(text);
    return *this;
  }
  /// Sets the key.
  MessageBuilder& key(std::string text) {
    record_.key = std::move(text);
    return *this;
  }
  /// Adds a header.
  MessageBuilder& header(std::string name, std::string value) {
    record_.headers.push_back({std::move(name), std::move(value)});
    return *this;
  }
  /// Sets the partition.
  MessageBuilder& partition(std::int32_t number) {
    record_.partition = number;
    return *this;
  }
  /// Sets the timestamp.
  MessageBuilder& at(Timestamp timestamp) {
    record_.timestamp = timestamp;
    return *this;
  }
  /// The message that was built.
  [[nodiscard]] const OwnedMessage& record() const noexcept { return record_; }

 private:
  OwnedMessage record_;
};

/// message("order-1").payload("…").key("…")
inline MessageBuilder message(std::string id) { return MessageBuilder(std::move(id)); }
/// A message without the header message-id.
inline MessageBuilder message_without_id() { return MessageBuilder(std::nullopt); }

/// A handler and its topic. For one thread.
class Harness {
 public:
  /// `settings` stand for the configuration of the topic, and override the pipeline's. The first deliver() throws
  /// ConfigError for wrong settings.
  explicit Harness(Pipeline pipeline, TopicSettings settings = {});
  ~Harness();

  /// Appends a record to its partition, and handles it to its end. It waits for retries, so give them small delays.
  /// With retry(...).durable() it runs one attempt only, and returns Settled::deferred if that fails: test the later
  /// ones without durable(). Throws what PollLoop::handle() throws.
  Settled deliver(const MessageBuilder& message);
  /// Delivers the last record again, at the same offset, as after a crash before its offset was committed.
  Settled redeliver();

  /// The handler's committed statements, in order.
  [[nodiscard]] std::vector<Statement> statements() const { return store().committed(); }
  /// The records of the dead letter topic, with the headers that tell why.
  [[nodiscard]] std::vector<OwnedMessage> dead_letters() const;
  /// How often the handler with its decorators has run, including failed runs.
  [[nodiscard]] int runs() const noexcept;

  /// Sets the answers of statements, and makes statements or the commit fail: see MemoryInbox.
  [[nodiscard]] MemoryInbox& store() const noexcept;
  /// The broker that gets the handler's dead letters and messages.
  [[nodiscard]] MemoryBroker& broker() const noexcept;

  /// The topic of the delivered records.
  static constexpr const char* kTopic = "test";

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile::testing
