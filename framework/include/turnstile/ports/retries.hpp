#pragma once
// Messages whose next attempt is stored (`retry(...).durable()`). An open transaction of an InboxSession asks for them,
// stores them and ends them; the relay of the outbox sends them again when they are due.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::ports {

/// A stored retry, as the record that comes back names it in its header kRetry (replay.hpp): "NUMBER.ATTEMPTS".
struct RetryRef {
  std::int64_t number = 0;  ///< of the row
  int attempts = 0;         ///< how often the handler had failed when the record was sent again
  bool operator==(const RetryRef&) const = default;  ///< compares both
  /// "17.3".
  [[nodiscard]] std::string text() const;
  /// Absent: `text` has another form.
  static std::optional<RetryRef> parse(std::string_view text);
};

/// A record that asks whether it may run.
struct RetryQuestion {
  MessageId id;                    ///< of the message
  std::optional<RetryRef> back{};  ///< the record came back for its next attempt
  std::optional<std::string_view>
      key;  ///< of the record, if it must not overtake earlier messages of its key. The row of a record that came back knows it, too
};

/// The answer.
enum class RetryTurn : std::uint8_t {
  runs,    ///< it may run
  stored,  ///< another record with this id is stored for a retry, and runs instead
  over,    ///< it came back, but its message is settled, was dropped, or has been sent again since
  behind,  ///< an earlier message of its key is stored for a retry, and is not among the questions: store it too
};

/// A message to be stored.
struct DeferredRetry {
  MessageId id;                       ///< of the message
  std::optional<RetryRef> back{};     ///< the record came back: its row is stored anew. Absent: the row is new
  OwnedMessage record;                ///< the record that failed; its place identifies it
  std::int32_t slot = 0;              ///< of its partition, see Fence
  std::int32_t incarnation = 0;       ///< of the record's topic
  int attempts = 0;                   ///< how often its handler has failed
  std::chrono::milliseconds delay{};  ///< until the next attempt, by the store's clock; 0: it only waits for its key
  bool in_order = false;              ///< later messages of its key wait for it
  std::string error{};                ///< the last error, for people
};

/// What a transaction changes.
struct RetryChanges {
  std::vector<MessageId> taken_back;    ///< ids that begin() found fresh, and that must not stay in the inbox
  std::vector<DeferredRetry> deferred;  ///< to be stored; their ids are taken back too
  std::vector<RetryRef> settled;        ///< their rows end
};

}  // namespace turnstile::ports
