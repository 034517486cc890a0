#include "log_replay.hpp"

#include <fmt/format.h>

#include <chrono>

#include "turnstile/error.hpp"

namespace turnstile::cli {

namespace {

/// Reads up to the last record before the first later one.
void read_to_time(TokenReader& reader, std::int64_t time_ms) {
  while (reader.position() + 1 < reader.end()) {
    const auto upcoming = reader.peek(std::chrono::seconds(10));
    if (upcoming && upcoming->time_ms > time_ms) return;
    reader.read_to(reader.position() + 1);
  }
}

[[noreturn]] void fail_cut_off(const TokenReader& reader, std::int64_t first_ms, const std::string& asked) {
  const auto from = reader.known_from();
  throw Error(
      Code::not_found,
      fmt::format(
          "{}: the holders of permits {} are no longer known: the log was trimmed, as after each snapshot that the members "
          "agree on, and begins at position {} ({}). {}",
          reader.name(), asked, reader.begin(), when_or_unknown(first_ms),
          from ? fmt::format("The first known position is {}", *from)
               : "No snapshot that continues in the log is left, so no position is known"));
}

}  // namespace

void replay_to(TokenReader& reader, const std::variant<std::int64_t, Microseconds>& point) {
  reader.start(reader.begin());
  const auto first = reader.begin() < reader.end() ? reader.peek(std::chrono::seconds(10)) : std::nullopt;
  const std::int64_t first_ms = first ? first->time_ms : 0;
  if (const auto* position = std::get_if<std::int64_t>(&point)) {
    if (*position >= reader.end()) {
      throw Error(Code::not_found,
                  fmt::format("{} has no position {}: {}", reader.name(), *position,
                              reader.end() == 0 ? "it is empty" : fmt::format("its last is {}", reader.end() - 1)));
    }
    if (!reader.known_from() || *position < *reader.known_from())
      fail_cut_off(reader, first_ms, fmt::format("at position {}", *position));
    reader.read_to(*position);
    return;
  }
  const auto time_ms =
      std::chrono::floor<std::chrono::milliseconds>(std::get<Microseconds>(point).time_since_epoch()).count();
  read_to_time(reader, time_ms);
  const bool before_all = reader.begin() > 0 && reader.position() < reader.begin();
  if (before_all || !reader.known_from() || reader.position() < *reader.known_from())
    fail_cut_off(reader, first_ms, "at " + when_or_unknown(time_ms));
}

Json replay_as_json(const TokenReader& reader) {
  const PermitsView view = reader.permits_of_part();
  return {{"log", reader.name()},
          {"position", view.position},
          {"time", iso_or_null(moment(reader.time_of(view.position)))},
          {"permits", permits_as_json(reader, view)}};
}

}  // namespace turnstile::cli
