#include "limits/limiter_shares.hpp"

#include <algorithm>
#include <tuple>
#include <vector>

namespace turnstile::postgres {

namespace {

std::int64_t wants(const LimiterMember& member) { return member.held + member.waiting; }

/// The order in which members get the seats above `base`. First, members that have had a seat for less than a turn keep
/// it. Then waiting members, the longest wait first. Then members whose turn is over, the last to come first.
auto turn_of(const LimiterMember& member, std::int64_t base, std::chrono::microseconds turn) {
  const bool seated = member.held > base;
  if (seated && member.held_for < turn) return std::tuple(0, std::chrono::microseconds(0));
  return seated ? std::tuple(2, member.held_for) : std::tuple(1, -member.waited_for);
}

}  // namespace

std::int64_t fair_share(std::int64_t limit, std::span<const LimiterMember> members, std::chrono::microseconds turn) {
  std::vector<LimiterMember> open(members.begin(), members.end());
  const bool rivals = std::any_of(open.begin(), open.end(), [](const auto& m) { return !m.me && m.waiting > 0; });
  if (!rivals) return limit;
  std::sort(open.begin(), open.end(), [](const auto& a, const auto& b) { return wants(a) < wants(b); });
  std::int64_t left = limit;
  std::size_t done = 0;
  for (; done < open.size(); ++done) {
    const std::int64_t each = left / static_cast<std::int64_t>(open.size() - done);
    if (wants(open[done]) > each) break;
    left -= wants(open[done]);
  }
  const auto me = std::find_if(open.begin(), open.end(), [](const auto& m) { return m.me; });
  if (me == open.end()) return 0;
  const auto satisfied = static_cast<std::size_t>(me - open.begin()) < done;
  if (done == open.size()) return wants(*me) + left;
  if (satisfied) return wants(*me);
  open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(done));
  const auto rest = static_cast<std::int64_t>(open.size());
  const std::int64_t base = left / rest, seats = left % rest;
  std::stable_sort(open.begin(), open.end(),
                   [&](const auto& a, const auto& b) { return turn_of(a, base, turn) < turn_of(b, base, turn); });
  const auto place = std::find_if(open.begin(), open.end(), [](const auto& m) { return m.me; }) - open.begin();
  return base + (place < seats ? 1 : 0);
}

}  // namespace turnstile::postgres
