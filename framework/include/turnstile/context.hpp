#pragma once
// What a handler may ask while it runs. One Context per run of a handler; used on that thread only.

#include <optional>
#include <stop_token>
#include <string_view>

#include "turnstile/transaction.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

class Context {
 public:
  struct Fields {
    Transaction* tx = nullptr;  ///< null where the mode is none
    std::stop_token stop{};
    int attempt = 1;
    std::optional<Fence> fence{};
    std::optional<MessageId> message_id{};
    std::string_view handler{};
  };
  explicit Context(const Fields& fields) : fields_(fields) {}

  /// The transaction that also holds the inbox row. Throws std::logic_error where the topic's mode is none.
  [[nodiscard]] Transaction& tx() const;
  /// Short for tx().defer(…).
  template <class... P>
  void defer(std::string_view sql, const P&... params) const {
    tx().defer(sql, params...);
  }
  /// Set when the work has lost its reason: the partition was taken away, the handler's timeout has passed, or the
  /// process is stopping and its drain time is over. A long handler should look at it.
  [[nodiscard]] const std::stop_token& stop_token() const noexcept { return fields_.stop; }
  /// 1 for the first run of a message in this process. Runs in a batch that was rolled back because of a neighbour
  /// are not counted.
  [[nodiscard]] int attempt() const noexcept { return fields_.attempt; }
  /// The ownership under which this runs: hand it to outside systems so that they can refuse an older one. Absent where
  /// there is no database.
  [[nodiscard]] std::optional<Fence> fence() const noexcept { return fields_.fence; }
  /// The id under which the inbox knows the message: a key for outside systems that deduplicate themselves.
  /// Absent in mode none, and for a span handler (ask each message).
  [[nodiscard]] std::optional<MessageId> idempotency_key() const noexcept { return fields_.message_id; }
  [[nodiscard]] std::string_view handler() const noexcept { return fields_.handler; }

 private:
  Fields fields_;
};

}  // namespace turnstile
