#pragma once
// Texts that fit into the columns of a terminal, whatever bytes they have. Pure.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace turnstile::cli::top {

/// Escapes each character that a terminal could execute, or that may not take exactly one column: "\x1b", "\u4e2d".
std::string escaped(std::string_view text);
/// Columns of a text without control characters.
std::size_t columns_of(std::string_view text);
/// At most `columns` of the text; "…" ends a text that was cut.
std::string cut(std::string_view text, std::size_t columns);

/// A column of numbers beside the names.
struct Column {
  std::string heading;
  std::size_t least = 7;  ///< its columns on the screen, at least
  int rank = 0;           ///< on a narrow terminal the highest rank is left out first
};
struct Row {
  std::string name;
  std::vector<std::string> cells;
};
/// The heading and the rows, each at most `width` wide. The names are on the left, and get the room that is left.
std::vector<std::string> fit_table(std::string_view heading, const std::vector<Column>& columns,
                                   const std::vector<Row>& rows, std::size_t width);

/// Divides `room` lines between sections that need so many: each gets what it needs, or else an equal part.
std::vector<std::size_t> share_lines(const std::vector<std::size_t>& needs, std::size_t room);

}  // namespace turnstile::cli::top
