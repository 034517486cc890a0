#include "screen.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <utility>

namespace demo {
namespace {

constexpr std::size_t kWidth = 100;

void print(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string text = std::to_string(number);
  for (auto at = static_cast<std::ptrdiff_t>(text.size()) - 3; at > 0; at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

std::string bar(std::int64_t part, std::int64_t whole, int cells) {
  const auto filled = whole <= 0 ? 0 : std::clamp<std::int64_t>(part * cells / whole, 0, cells);
  return std::string(static_cast<std::size_t>(filled), '#') +
         std::string(static_cast<std::size_t>(cells - filled), '.');
}

Screen::Screen() : terminal_(::isatty(STDOUT_FILENO) == 1), colours_(terminal_ && std::getenv("NO_COLOR") == nullptr) {}

std::string Screen::colour(const char* code, const std::string& text) const {
  return colours_ ? fmt::format("\033[{}m{}\033[0m", code, text) : text;
}

void Screen::title(const std::string& text) {
  leave_view();
  print("\n" + colour("1", text) + "\n");
}

void Screen::say(const std::string& text) {
  leave_view();
  std::istringstream words(text);
  std::string row = "  ";
  for (std::string word; words >> word;) {
    if (row.size() + word.size() + 1 > kWidth) {
      print(row + "\n");
      row = "  ";
    }
    row += (row.size() > 2 ? " " : "") + word;
  }
  print(row + "\n");
}

void Screen::line(const std::string& text) {
  leave_view();
  print("  " + text + "\n");
}

bool Screen::due() const { return std::chrono::steady_clock::now() >= next_; }

void Screen::show(const std::vector<std::string>& view, const std::string& brief) {
  next_ =
      std::chrono::steady_clock::now() + (terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(1000));
  if (!terminal_) {
    if (brief != std::exchange(shown_, brief)) print("  " + brief + "\n");
    return;
  }
  // Goes up to the start of the last view, then writes each line over the old one and clears its rest.
  std::string text = drawn_ == 0 ? "\n" : fmt::format("\033[{}A", drawn_);
  for (const std::string& row : view) text += "\r  " + row + "\033[K\n";
  drawn_ = view.size();
  print(text);
}

}  // namespace demo
