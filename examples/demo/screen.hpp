#pragma once
// The demo's output: sentences that stay, and below them, on a terminal, a view that is redrawn in place. In a file or
// a pipe the view is a plain line once a second.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace demo {

/// "12,000"
std::string grouped(std::int64_t number);
/// "######....": `part` of `whole` in `width` characters.
std::string bar(std::int64_t part, std::int64_t whole, int width);

/// For one thread.
class Screen {
 public:
  Screen();

  /// A title in bold.
  void title(const std::string& text);
  /// Prints sentences, broken into lines.
  void say(const std::string& text);
  /// Prints a line unchanged.
  void line(const std::string& text);
  /// Whether the view is due again. The call costs almost nothing.
  [[nodiscard]] bool due() const;
  /// Draws `view` in place of the last one; without a terminal, prints `brief`.
  void show(const std::vector<std::string>& view, const std::string& brief);
  /// The view stays as it is, and later output goes below it.
  void leave_view() { drawn_ = 0; }
  [[nodiscard]] std::string good(const std::string& text) const { return colour("32", text); }
  [[nodiscard]] std::string bad(const std::string& text) const { return colour("1;31", text); }

 private:
  [[nodiscard]] std::string colour(const char* code, const std::string& text) const;

  bool terminal_;
  bool colours_;
  std::size_t drawn_ = 0;  ///< lines of the view above the cursor
  std::string shown_;      ///< where stdout is no terminal: the last line
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace demo
