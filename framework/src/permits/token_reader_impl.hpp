#pragma once
// A log, or a part of it, as a TokenReader reads it.

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "support/deadline.hpp"
#include "tokens/apply.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile {

struct TokenReader::Impl {
  /// How long it waits for records at a time.
  static constexpr std::chrono::milliseconds kLook{100};
  static constexpr std::size_t kTimesKept = 1'000'000;
  /// The search ends after this number of snapshots from before the log's beginning; all earlier ones are older still.
  /// Two members write snapshots, one after another.
  static constexpr int kOldSnapshots = 4;

  /// `first`: the state before the log's first record.
  explicit Impl(std::unique_ptr<ports::TokenLog> of, tokens::State empty = {})
      : log(std::move(of)), name(log->name()), begin(log->begin()), end(log->end()), first(std::move(empty)) {}

  /// Events of a program that is no member need a unique id, so that the program recognizes them when it reads them.
  static tokens::MemberId random_id() {
    std::random_device random;
    return (tokens::MemberId{random()} << 32 | random()) | 1;
  }

  /// Sets the state from which reading at `from` begins.
  void restore(std::int64_t from) {
    // A snapshot from beyond the end belongs to an earlier log of this name, as may one of another division.
    std::optional<tokens::State> oldest;
    int too_old = 0;
    for (auto kept = log->snapshot(); kept; kept = log->snapshot(kept->number)) {
      auto saved = tokens::restore(kept->bytes);
      if (saved && !tokens::is_same_part(*saved, first)) continue;
      if (saved && saved->last + 1 < begin && ++too_old == kOldSnapshots) break;
      if (!saved || saved->last + 1 < begin || saved->last >= end) continue;
      oldest = std::move(saved);
      if (oldest->last < from) break;
    }
    if (begin == 0 && (!oldest || oldest->last >= from)) oldest = first;
    known = oldest.has_value();
    state = oldest ? std::move(*oldest) : first;
    known_from = state.last;
  }

  [[nodiscard]] bool means_something(std::int64_t at) const { return known && at > state.last; }

  void fetch(std::chrono::milliseconds timeout) {
    if (!upcoming.empty()) return;
    for (auto& record : log->read(timeout)) {
      if (record.position < next) continue;
      if (record.position != next + static_cast<std::int64_t>(upcoming.size())) {
        throw TokenLogBroken("positions " + std::to_string(next) + " to " + std::to_string(record.position - 1) +
                             " are missing in " + name);
      }
      // Several clocks wrote the times. A later record never shows an earlier time, so that a search by the shown time
      // finds it.
      latest_ms = record.time_ms = std::max(latest_ms, record.time_ms);
      upcoming.push_back(std::move(record));
    }
  }
  ports::TokenLog::Record take() {
    ports::TokenLog::Record record = std::move(upcoming.front());
    upcoming.pop_front();
    next = record.position + 1;
    if (times.empty()) first_time = record.position;
    times.push_back(record.time_ms);
    if (times.size() > kTimesKept) {
      times.pop_front();
      ++first_time;
    }
    return record;
  }
  void wait(std::chrono::milliseconds timeout, std::int64_t wanted) {
    const auto late = detail::deadline_after(timeout);
    while (upcoming.empty()) {
      if (std::chrono::steady_clock::now() >= late) {
        throw BrokerError(Code::kafka_unavailable, "reading " + name + " stopped at position " +
                                                       std::to_string(next - 1) + " of " + std::to_string(wanted) +
                                                       ": no record arrived for " +
                                                       std::to_string(timeout.count() / 1'000) +
                                                       " s. Check that its brokers run, and try again");
      }
      fetch(kLook);
    }
  }
  void skip() {
    const ports::TokenLog::Record record = take();
    if (means_something(record.position)) tokens::apply(state, record.position, tokens::decode(record.bytes));
  }

  /// Writes an event of a program that is no member and reads its outcome. Absent: it was not read back before `late`.
  std::optional<tokens::Effects::Outcome> say(decltype(tokens::Event::body) body,
                                              std::chrono::steady_clock::time_point late) {
    return write({.member = random_id(), .epoch = 1, .seq = 1, .body = std::move(body)}, late);
  }
  std::optional<tokens::Effects::Outcome> write(const tokens::Event& event,
                                                std::chrono::steady_clock::time_point late) {
    log->append(tokens::encode(event));
    for (; std::chrono::steady_clock::now() < late; fetch(kLook)) {
      // Returns stale, so that the caller writes the whole change again. A second copy of this event changes nothing,
      // or is stale too.
      if (log->failed()) {
        why_not = log->why_failed();
        return tokens::Effects::Outcome::stale;
      }
      while (!upcoming.empty()) {
        const ports::TokenLog::Record record = take();
        const tokens::Event read = tokens::decode(record.bytes);
        const tokens::Effects effects = tokens::apply(state, record.position, read);
        if (read == event) return effects.outcome;
      }
    }
    return std::nullopt;
  }

  std::unique_ptr<ports::TokenLog> log;
  const std::string name;
  const std::int64_t begin, end;
  const tokens::State first;
  bool known = false;
  tokens::State state;
  std::int64_t known_from = -1;  ///< state.last at the start
  std::int64_t next = 0;
  std::deque<ports::TokenLog::Record> upcoming;
  std::int64_t latest_ms = 0;  ///< of the records read since the start
  std::deque<std::int64_t> times;
  std::int64_t first_time = 0;
  std::string why_not;

  // Of part 0.
  TokenLogParts open_part;
  std::vector<std::unique_ptr<Impl>> others;  ///< the other parts
};

}  // namespace turnstile
