#pragma once
// Events of all kinds, for property tests. There are few members, names and numbers, so that events often share them.

#include <rapidcheck.h>

#include <vector>

#include "tokens/apply.hpp"

namespace turnstile::tokens {

inline rc::Gen<Count> some_count() {
  return rc::gen::weightedOneOf<Count>(
      {{8, rc::gen::inRange<Count>(0, 12)}, {1, rc::gen::element(Count{kMostPermits}, kMostPermits + 1, ~Count{0})}});
}

inline Line any_line() {
  return {.limiter = *rc::gen::element<std::string>("psp", "mail", "", std::string(256, 'x')),
          .limit = *some_count(),
          .strict = *rc::gen::inRange(0, 4) == 0,
          .wants = *some_count(),
          .urgent = *some_count(),
          .least = *some_count(),
          .busy = *some_count(),
          .given_back = *some_count(),
          .set_aside = *some_count(),
          .turn_over = *rc::gen::inRange(0, 4) == 0,
          .outlives_fence = *rc::gen::inRange(0, 4) == 0,

          .reserve = *some_count(),
          .gone = *rc::gen::inRange(0, 8) == 0};
}

inline Partition any_partition() {
  return {"orders", *rc::gen::inRange<std::int32_t>(0, 3), *rc::gen::element<std::string>("", "billing")};
}

inline decltype(Event::body) any_body() {
  switch (*rc::gen::inRange(0, 15)) {
    case 0:
    case 1:
      return Joined{.host = "host",
                    .pid = 7,
                    .client = "client",
                    .lease_ms = *rc::gen::element<std::uint32_t>(1'000U, 1'000U, 60'000U, 0U),
                    .weight = *rc::gen::inRange<std::uint32_t>(0, 4),
                    .knows = *rc::gen::inRange<std::uint32_t>(0, 4),
                    .reserve_ms = *rc::gen::inRange<std::uint32_t>(0, 9),
                    .most_limiters = *rc::gen::inRange<std::uint32_t>(0, 3),
                    .was = {*rc::gen::inRange<MemberId>(0, 4)},
                    .division = *rc::gen::weightedElement<std::uint64_t>({{4, 1U}, {1, 0U}, {1, 2U}}),
                    .part = *rc::gen::weightedElement<std::uint32_t>({{3, 0U}, {3, 1U}, {1, 2U}})};
    case 2: {
      Keep keep;
      for (int lines = *rc::gen::inRange(0, 3); lines > 0; --lines) keep.lines.push_back(any_line());
      if (*rc::gen::inRange(0, 2) == 0) keep.checkpoint = Checkpoint{*rc::gen::inRange<Position>(0, 9), 5};
      return keep;
    }
    case 3: return Acquire{any_line()};
    case 4: return Release{any_line()};
    case 5: {
      PartitionsClaimed claimed;
      for (int claims = *rc::gen::inRange(0, 3); claims > 0; --claims)
        claimed.claims.push_back(
            {any_partition(), *rc::gen::inRange<std::uint64_t>(0, 4), *rc::gen::inRange<Position>(-1, 20)});
      return claimed;
    }
    case 6: return PartitionsRevoked{{any_partition()}};
    case 7: return Drained{};
    case 8:
      return Expire{*rc::gen::inRange<MemberId>(0, 4), *rc::gen::inRange<Position>(-1, 60),
                    *rc::gen::inRange(0, 3) == 0};
    case 9: {
      LimitSet set{.limiter = any_line().limiter, .limit = {}, .seen = *rc::gen::inRange<Position>(-1, 60)};
      if (*rc::gen::inRange(0, 3) > 0) set.limit = *some_count();
      if (*rc::gen::inRange(0, 2) > 0) set.by = "anna@ops-1", set.at_ms = *rc::gen::inRange<std::int64_t>(0, 9);
      return set;
    }
    case 10: return VersionSet{*rc::gen::inRange<std::uint32_t>(0, 4)};
    case 11: return Left{};
    case 12: {
      const auto witness = *rc::gen::inRange<MemberId>(0, 4);  // see any_log()
      return Divided{*rc::gen::inRange<std::uint32_t>(0, 4), *rc::gen::inRange<std::uint64_t>(0, 3), witness,
                     *rc::gen::weightedElement<Position>({{4, static_cast<Position>(witness) - 1}, {1, Position{9}}})};
    }
    case 13: {
      Opened opened{.division = *rc::gen::inRange<std::uint64_t>(0, 3),
                    .part = *rc::gen::weightedElement<std::uint32_t>({{4, 1U}, {1, 0U}, {1, 2U}}),
                    .sets = {}};
      if (*rc::gen::inRange(0, 2) == 0) opened.sets.push_back({any_line().limiter, *some_count()});
      return opened;
    }
    default: return Unknown{};
  }
}

/// Most events come from members, and most are in order.
inline rc::Gen<Event> any_event() {
  return rc::gen::exec([] {
    return Event{.member = *rc::gen::inRange<MemberId>(0, 4),
                 .epoch = *rc::gen::weightedElement<std::uint32_t>({{8, 1U}, {1, 0U}, {1, 2U}}),
                 .seq = *rc::gen::inRange<std::uint64_t>(0, 60),
                 .body = any_body()};
  });
}

/// A log in which three members join, followed by any events. `division`, `part`: of a divided log.
inline std::vector<Event> any_log(std::uint64_t division = 0, std::uint32_t part = 0) {
  std::vector<Event> log;
  for (MemberId member = 1; member <= 3; ++member)
    log.push_back({member, 1, 1,
                   Joined{.host = "host",
                          .pid = 1,
                          .client = "client",
                          .lease_ms = 1'000,
                          .knows = *rc::gen::inRange<std::uint32_t>(1, 3),
                          .division = division,
                          .part = part}});
  std::uint64_t seq = 1;
  for (Event& event : *rc::gen::container<std::vector<Event>>(any_event())) {
    if (*rc::gen::inRange(0, 4) > 0) event.seq = ++seq;
    log.push_back(std::move(event));
  }
  return log;
}

inline State replay(const std::vector<Event>& log) {
  State state;
  for (const Event& event : log) apply(state, state.last + 1, event);
  return state;
}

}  // namespace turnstile::tokens
