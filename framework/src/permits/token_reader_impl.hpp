#pragma once
// A log, or a part of it, as a TokenReader reads it.

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
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
  /// How long it waits for records that the log must have.
  static constexpr std::chrono::milliseconds kPatience{10'000};
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
  void restore(std::int64_t from);

  [[nodiscard]] bool means_something(std::int64_t at) const { return known && at > state.last; }

  void fetch(std::chrono::milliseconds timeout);
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
  void wait(std::chrono::milliseconds timeout, std::int64_t wanted);
  void read_to(std::int64_t position) {
    while (next <= position) {
      wait(kPatience, position);
      skip();
    }
  }
  /// Reads what has arrived since.
  void catch_up() {
    for (fetch(std::chrono::milliseconds{0}); !upcoming.empty(); fetch(std::chrono::milliseconds{0})) skip();
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
  std::optional<tokens::Effects::Outcome> write(const tokens::Event& event, std::chrono::steady_clock::time_point late);

  std::unique_ptr<ports::TokenLog> log;
  const std::string name;
  const std::int64_t begin, end;
  const tokens::State first;
  bool known = false;
  tokens::State state;
  std::int64_t known_from = -1;  ///< state.last at the start
  bool from_begin = false;       ///< it started at the log's beginning, so that times of old records are known
  std::int64_t next = 0;
  std::deque<ports::TokenLog::Record> upcoming;
  std::int64_t latest_ms = 0;  ///< of the records read since the start
  std::deque<std::int64_t> times;
  std::int64_t first_time = 0;
  std::string why_not;

  // Of part 0.
  /// Opens the part if it is not open, and reads it to its end.
  Impl& other(std::uint32_t part);
  TokenLogParts open_part;
  std::map<std::uint32_t, std::unique_ptr<Impl>> others;  ///< the other parts that are open
};

}  // namespace turnstile
