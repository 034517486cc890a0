#pragma once
// What the demo shows: sentences that stay, and below them, on a terminal, a view that is drawn anew in place. Elsewhere (a
// file, a pipe) the view is one plain line a second.

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace demo {

/// "12,000"
std::string grouped(std::int64_t number);
/// "######....": `part` of `whole` in `width` characters.
std::string bar(std::int64_t part, std::int64_t whole, int width);

/// Used by one thread.
class Screen {
 public:
  Screen();

  /// A title in bold.
  void title(const std::string& text);
  /// A sentence or more, broken into lines.
  void say(const std::string& text);
  /// A line as it is.
  void line(const std::string& text);
  /// True when the view is due again; asking costs nothing.
  [[nodiscard]] bool due() const;
  /// Draws `view` in the place of the one before; or prints `brief`.
  void show(const std::vector<std::string>& view, const std::string& brief);
  /// The view stays as it is; what follows goes below it.
  void leave_view() { drawn_ = 0; }
  [[nodiscard]] std::string good(const std::string& text) const { return colour("32", text); }
  [[nodiscard]] std::string bad(const std::string& text) const { return colour("1;31", text); }

 private:
  [[nodiscard]] std::string colour(const char* code, const std::string& text) const;

  bool terminal_;
  bool colours_;
  std::size_t drawn_ = 0;  ///< lines of the view above the cursor
  std::chrono::steady_clock::time_point next_{};
};

}  // namespace demo
