#pragma once
// Makes a line of the table of settings (settings_table.hpp) out of a codec and a member of a section.

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "config/settings_table.hpp"

namespace turnstile::detail::setting {

/// The words of a setting, for codec::Choice.
template <class Value, std::size_t N>
using Words = std::array<std::pair<std::string_view, Value>, N>;

template <class T>
struct IsOptional : std::false_type {
  using Value = T;
};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {
  using Value = T;
};

/// Converts numbers and durations to the type of the member.
template <class To, class From>
To converted(From&& from) {
  if constexpr (std::is_same_v<To, std::chrono::seconds>) return std::chrono::floor<std::chrono::seconds>(from);
  else return static_cast<To>(std::forward<From>(from));
}

template <class Codec, auto Member, class Section>
struct Line {
  using Stored = std::remove_reference_t<decltype(std::declval<Section&>().*Member)>;
  using Optional = IsOptional<Stored>;
  using Plain = typename Optional::Value;

  static Problem read(const ConfigValue& value, Section& into) {
    typename Codec::Value read_value{};
    if (auto problem = Codec::read(value, read_value)) return problem;
    into.*Member = converted<Plain>(std::move(read_value));
    return std::nullopt;
  }
  static std::optional<std::string> write(const Section& from) {
    if constexpr (Optional::value) {
      if (!(from.*Member)) return std::nullopt;
      return Codec::write(converted<typename Codec::Value>(*(from.*Member)));
    } else {
      auto text = Codec::write(converted<typename Codec::Value>(from.*Member));
      return text.empty() ? std::nullopt : std::optional(std::move(text));
    }
  }
  static void take(Section& into, const Section& over) {
    if constexpr (Optional::value) {
      if (over.*Member) into.*Member = over.*Member;
    } else {
      into.*Member = over.*Member;
    }
  }
};

/// The setting's name, its default as TOML, the meaning of a default that is empty or 0, and a description.
template <class Codec, auto Member, class Section>
constexpr Setting<Section> line(std::string_view name, std::string_view fallback, std::string_view otherwise,
                                std::string_view what) {
  using L = Line<Codec, Member, Section>;
  return {name, fallback, otherwise, what, &L::read, &L::write, &L::take, &Codec::form};
}

}  // namespace turnstile::detail::setting
