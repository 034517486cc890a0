#include "fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>

#include "turnstile/text.hpp"

namespace turnstile::cli::top {

namespace {

constexpr std::size_t kGap = 2;
constexpr std::size_t kLeastName = 8;

/// Latin, Greek and Cyrillic letters, without accents that combine with the letter before.
bool takes_one_column(char32_t code) {
  if (code < 0x300) return code >= 0x20 && code != 0x7f && (code < 0x80 || code >= 0xa0) && code != 0xad;
  return (code >= 0x370 && code < 0x483) || (code >= 0x48a && code < 0x530) || code == U'…';
}

std::string aligned(std::string_view text, std::size_t columns, bool to_the_right) {
  const std::string shown = cut(text, columns);
  const std::string blanks(columns - std::min(columns, columns_of(shown)), ' ');
  return to_the_right ? blanks + shown : shown + blanks;
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string line;
  while (!text.empty()) {
    const auto next = text::first_character(text);
    const std::size_t bytes = next ? next->bytes : 1;
    if (next && takes_one_column(next->code)) line += text.substr(0, bytes);
    else if (next && next->code >= 0x80) line += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(next->code));
    else line += fmt::format("\\x{:02x}", static_cast<unsigned>(static_cast<unsigned char>(text[0])));
    text.remove_prefix(bytes);
  }
  return line;
}

std::size_t columns_of(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

std::string cut(std::string_view text, std::size_t columns) {
  if (columns_of(text) <= columns) return std::string(text);
  if (columns == 0) return "";
  std::size_t end = 0;
  for (std::size_t shown = 0; end < text.size(); ++end) {
    const bool begins = (static_cast<unsigned char>(text[end]) & 0xc0U) != 0x80;
    if (begins && ++shown == columns) break;
  }
  return std::string(text.substr(0, end)) + "…";
}

std::vector<std::string> fit_table(std::string_view heading, const std::vector<Column>& columns,
                                   const std::vector<Row>& rows, std::size_t width) {
  std::vector<std::size_t> widths;
  for (std::size_t i = 0; i < columns.size(); ++i) {
    std::size_t widest = std::max(columns[i].least, columns_of(columns[i].heading));
    for (const auto& row : rows) widest = std::max(widest, columns_of(row.cells[i]));
    widths.push_back(widest);
  }
  std::vector<bool> shown(columns.size(), true);
  const auto taken = [&] {
    std::size_t sum = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) sum += shown[i] ? widths[i] + kGap : 0;
    return sum;
  };
  while (taken() + kLeastName > width) {
    std::optional<std::size_t> last;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (shown[i] && (!last || columns[i].rank > columns[*last].rank)) last = i;
    }
    if (!last) break;
    shown[*last] = false;
  }
  const std::size_t name = width > taken() ? width - taken() : 0;
  std::vector<std::string> lines;
  const auto add = [&](std::string_view first, const auto& cell) {
    std::string line = aligned(first, name, false);
    for (std::size_t i = 0; i < columns.size(); ++i) {
      if (shown[i]) line += std::string(kGap, ' ') + aligned(cell(i), widths[i], true);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    lines.push_back(std::move(line));
  };
  add(heading, [&](std::size_t i) { return columns[i].heading; });
  for (const auto& row : rows) add(row.name, [&](std::size_t i) { return row.cells[i]; });
  return lines;
}

std::vector<std::size_t> share_lines(const std::vector<std::size_t>& needs, std::size_t room) {
  std::vector<std::size_t> shares(needs.size(), 0);
  bool given = true;
  while (room > 0 && given) {
    given = false;
    for (std::size_t i = 0; i < needs.size() && room > 0; ++i) {
      if (shares[i] == needs[i]) continue;
      ++shares[i];
      --room;
      given = true;
    }
  }
  return shares;
}

}  // namespace turnstile::cli::top
