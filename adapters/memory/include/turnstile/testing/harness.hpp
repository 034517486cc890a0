#pragma once
// A handler with its decorators, run as in production but without Kafka and without PostgreSQL: the real retries, the
// real inbox decisions, a broker and a store in memory. Everything happens on the caller's thread.
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

/// Handlers tested without Kafka and PostgreSQL; the twins of the adapters.
namespace turnstile::testing {

/// A message to deliver, built in one expression. Its id goes into the header message-id.
class MessageBuilder {
 public:
  /// Begins a message with this id in the header message-id; without an id, one without that header.
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

/// One handler, one topic. Used by one thread.
class Harness {
 public:
  /// `settings` is what a configuration would say of the topic: it wins over the pipeline's. Wrong settings are
  /// reported by the first deliver(), as ConfigError.
  explicit Harness(Pipeline pipeline, TopicSettings settings = {});
  ~Harness();

  /// A new record at the end of its partition, handled to its end: retries are waited for, so give them small delays.
  /// Throws what PollLoop::handle() throws.
  Settled deliver(const MessageBuilder& message);
  /// The last record once more, at the same offset, as after a crash before its offset was committed.
  Settled redeliver();

  /// The handler's statements that were committed, in order.
  [[nodiscard]] std::vector<Statement> statements() const { return store().committed(); }
  /// What went to the dead letter topic, with the headers that say why.
  [[nodiscard]] std::vector<OwnedMessage> dead_letters() const;
  /// Runs of the handler with its decorators so far, those that failed included.
  [[nodiscard]] int runs() const noexcept;

  /// To answer statements, to let them or the commit fail: see MemoryInbox.
  [[nodiscard]] MemoryInbox& store() const noexcept;
  /// The broker that the handler's dead letters and messages go to.
  [[nodiscard]] MemoryBroker& broker() const noexcept;

  /// The topic's name: where records are delivered from.
  static constexpr const char* kTopic = "test";

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile::testing
