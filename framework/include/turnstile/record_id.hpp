#pragma once
// The ids of records, for programs that look at a topic without handling it.

#include <memory>
#include <optional>
#include <string>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Computes ids as a consumer with this `message_id` does. Several threads may use it.
class RecordId {
 public:
  /// `source` is a value of the setting `message_id`. Throws ConfigError.
  explicit RecordId(const std::string& source);
  ~RecordId();
  /// Moves.
  RecordId(RecordId&&) noexcept;
  /// Moves.
  RecordId& operator=(RecordId&&) noexcept;

  /// Absent: the record has no id. `incarnation` is how often its topic was found recreated.
  [[nodiscard]] std::optional<MessageId> of(const Message& message, std::int32_t incarnation) const;
  /// Whether the place of a record is its id.
  [[nodiscard]] bool is_offset() const noexcept;

 private:
  struct Source;
  std::unique_ptr<const Source> source_;
};

}  // namespace turnstile
