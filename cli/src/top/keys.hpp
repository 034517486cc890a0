#pragma once
// The keys that a terminal sends, and the questions that change a limit. Pure.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model.hpp"

namespace turnstile::cli::top {

struct Key {
  enum class Kind : std::uint8_t { character, enter, escape, backspace, next, previous };
  Kind kind = Kind::character;
  char character = 0;
  bool operator==(const Key&) const = default;
};

/// Keys out of the bytes of a terminal. A sequence may arrive in pieces. Keys that mean nothing here are dropped.
class KeyParser {
 public:
  std::vector<Key> parse(std::string_view bytes);

 private:
  enum class State : std::uint8_t { plain, after_escape, in_sequence };
  State state_ = State::plain;
};

/// A limit that the operator wants. Absent: unset.
struct LimitChange {
  std::string limiter;
  std::optional<std::int64_t> limit{};
};

/// Asks for a limiter, its new limit, and a confirmation. It gets the limiters anew with each call, because they change
/// while it asks. The chosen name stays the same.
class LimitDialog {
 public:
  [[nodiscard]] bool open() const noexcept { return step_ != Step::closed; }
  void begin();
  void close() { step_ = Step::closed; }
  /// The confirmed change; then the dialog is closed.
  std::optional<LimitChange> press(const Key& key, const std::vector<LimiterView>& limiters);
  /// The question, at most `columns` wide.
  [[nodiscard]] std::string question(const std::vector<LimiterView>& limiters, std::size_t columns) const;

 private:
  enum class Step : std::uint8_t { closed, limiter, number, confirmation };
  void press_in_name(const Key& key, const std::vector<LimiterView>& limiters);
  void press_in_number(const Key& key);
  [[nodiscard]] std::vector<const LimiterView*> matching(const std::vector<LimiterView>& limiters) const;

  Step step_ = Step::closed;
  std::string typed_{};
  std::size_t chosen_ = 0;  ///< of the limiters that match
  LimitChange change_{};
};

}  // namespace turnstile::cli::top
