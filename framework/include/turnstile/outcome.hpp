#pragma once
// What a handler says of a message. A handler that returns nothing says done(); one that throws says "try again",
// as far as retry() allows, then dead letter.

#include <chrono>
#include <string>
#include <utility>

namespace turnstile {

/// What a handler answers for its messages.
class Outcome {
 public:
  /// Which of the four it is.
  enum class Kind : unsigned char {
    done,         ///< see done()
    skip,         ///< see skip()
    retry_after,  ///< see retry_after()
    dead_letter   ///< see dead_letter()
  };

  /// The effect is made (or queued in the transaction): settle the message.
  static Outcome done() { return Outcome{Kind::done, {}, {}}; }
  /// Nothing is to be done for this message, on purpose: settle it; its id counts as seen.
  static Outcome skip(std::string why = {}) { return Outcome{Kind::skip, {}, std::move(why)}; }
  /// Not now. The transaction is rolled back; the message comes again after `delay`, counted as an attempt.
  static Outcome retry_after(std::chrono::milliseconds delay, std::string why = {}) {
    return Outcome{Kind::retry_after, delay, std::move(why)};
  }
  /// Never. Goes to the dead letter topic at once, whatever attempts are left.
  static Outcome dead_letter(std::string why) { return Outcome{Kind::dead_letter, {}, std::move(why)}; }

  /// Which of the four it is.
  [[nodiscard]] Kind kind() const noexcept { return kind_; }
  /// Retry_after: how long to wait.
  [[nodiscard]] std::chrono::milliseconds delay() const noexcept { return delay_; }
  /// The reason, for logs and dead letters.
  [[nodiscard]] const std::string& why() const noexcept { return why_; }
  /// done or skip: the transaction may commit.
  [[nodiscard]] bool settles() const noexcept { return kind_ == Kind::done || kind_ == Kind::skip; }

 private:
  Outcome(Kind kind, std::chrono::milliseconds delay, std::string why)
      : kind_(kind), delay_(delay), why_(std::move(why)) {}
  Kind kind_;
  std::chrono::milliseconds delay_;
  std::string why_;
};

}  // namespace turnstile
