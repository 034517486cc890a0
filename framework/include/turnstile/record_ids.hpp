#pragma once
// The ids of records, computed as a consumer of the topic computes them. For programs that compare records with the
// inbox.

#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "turnstile/message.hpp"
#include "turnstile/topic_settings.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Immutable, so any thread may use it.
class RecordIds {
 public:
  /// The record has no usable id: a consumer makes it a dead letter.
  struct Missing {
    std::string why;  ///< for people: "header 'message-id' is absent"
  };
  /// It was published again for another handler, or for one of another group: this handler passes over it.
  struct ForAnother {
    std::string handler;  ///< who that is, for people
  };
  /// What a record is to the handler.
  using Found = std::variant<MessageId, Missing, ForAnother>;

  /// `settings` are the topic's, and `group` the consumer group; empty: unknown. Throws ConfigError if message_id is not
  /// valid.
  RecordIds(const std::string& topic, const TopicSettings& settings, const std::string& group = "");

  /// The handler's name: the scope of the ids.
  [[nodiscard]] const std::string& handler() const noexcept { return handler_; }
  /// How the topic's messages are deduplicated.
  [[nodiscard]] Mode mode() const noexcept { return mode_; }
  /// `incarnation` is how often the topic was found recreated (table `fence`).
  [[nodiscard]] Found of(const Message& message, std::int32_t incarnation) const;

 private:
  std::string handler_;
  std::string group_;
  Mode mode_;
  std::shared_ptr<const void> source_;  ///< an IdSource, which is private
};

}  // namespace turnstile
