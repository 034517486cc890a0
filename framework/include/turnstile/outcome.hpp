#pragma once
// The result of a handler for a message. A handler that returns nothing means done(). A handler that throws means "try
// again", as often as retry() allows, then dead letter.

#include <chrono>
#include <string>
#include <utility>

namespace turnstile {

/// The result of a handler for its messages.
class Outcome {
 public:
  /// The four results.
  enum class Kind : unsigned char {
    done,         ///< see done()
    skip,         ///< see skip()
    retry_after,  ///< see retry_after()
    dead_letter   ///< see dead_letter()
  };

  /// The effect is made, or queued in the transaction. Settles the message.
  static Outcome done() { return Outcome{Kind::done, {}, {}}; }
  /// Settles the message on purpose without an effect. Its id counts as seen.
  static Outcome skip(std::string why = {}) { return Outcome{Kind::skip, {}, std::move(why)}; }
  /// Not now. The transaction is rolled back, and the message runs again after `delay`. This counts as an attempt.
  /// A negative delay is 0, and one above 3,650 days is 3,650 days.
  static Outcome retry_after(std::chrono::milliseconds delay, std::string why = {}) {
    return Outcome{Kind::retry_after, delay, std::move(why)};
  }
  /// Never. Dead-letters the message at once, even if attempts are left.
  static Outcome dead_letter(std::string why) { return Outcome{Kind::dead_letter, {}, std::move(why)}; }

  /// Which of the four results it is.
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// For retry_after: how long to wait, as it was passed.
  [[nodiscard]] std::chrono::milliseconds delay() const noexcept { return delay_; }
  /// The reason, for logs and dead letters.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// True for done and skip: the transaction may commit.
  [[nodiscard]] bool settles() const noexcept { return kind_ == Kind::done || kind_ == Kind::skip; }

 private:
  Outcome(Kind kind, std::chrono::milliseconds delay, std::string why)
      : kind_(kind), delay_(delay), why_(std::move(why)) {}
  Kind kind_;
  std::chrono::milliseconds delay_;
  std::string why_;
};

}  // namespace turnstile
