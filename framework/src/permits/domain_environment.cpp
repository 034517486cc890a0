#include "permits/domain_environment.hpp"

#include <unistd.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "support/process_name.hpp"
#include "turnstile/lease_clock.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;

tokens::Micros now_us() { return LeaseClock::now_us(); }

std::uint32_t milliseconds_of(milliseconds time) {
  constexpr milliseconds longest{std::numeric_limits<std::uint32_t>::max()};
  return static_cast<std::uint32_t>(std::clamp(time, milliseconds{0}, longest).count());
}

}  // namespace

tokens::MemberId random_id() {
  std::random_device random;
  return (tokens::MemberId{random()} << 32 | random()) | 1;
}

DomainEnvironment DomainEnvironment::of_this_process() { return {.clock = now_us, .next_id = random_id}; }

tokens::MemberSettings member_settings(const TokenSettings& settings, const DomainEnvironment& environment,
                                       std::string log) {
  tokens::MemberSettings member;
  member.log = std::move(log);
  member.about = {.host = host_name(),
                  .pid = static_cast<std::uint32_t>(::getpid()),
                  .client = settings.client.substr(0, tokens::kLongestName),
                  .lease_ms = static_cast<std::uint32_t>(settings.lease.count()),
                  .weight = settings.weight,
                  .knows = environment.knows,
                  .reserve_ms = settings.reserve > 0 ? milliseconds_of(settings.reserve_time) : 0,
                  .most_limiters = settings.most_limiters,
                  .was = {},
                  .knows_rest = environment.knows_rest};
  member.next_id = environment.next_id;
  member.turn = std::chrono::microseconds(settings.turn).count();
  member.checkpoint_every = settings.snapshot_every;
  return member;
}

}  // namespace turnstile::detail
