#pragma once
// Checks an argument that is a whole number, in decimal. CLI11's own checks print ranges of floating-point numbers, and it
// changes a number that is too large into the largest one, and reads 010 as 8.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <string>

#include "text.hpp"

namespace turnstile::cli {

/// For CLI::Option::transform(), so that CLI11 reads what was checked.
inline CLI::Validator whole_number(std::int64_t from, std::int64_t to = std::numeric_limits<std::int64_t>::max()) {
  return CLI::Validator(
      [from, to](std::string& text) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error == std::errc{} && end == text.data() + text.size() && value >= from && value <= to) {
          text = std::to_string(value);
          return std::string();
        }
        return fmt::format("{} is not a whole number from {} to {}", one_line(text, 40), from, to);
      },
      "");
}

}  // namespace turnstile::cli
