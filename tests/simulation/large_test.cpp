// Many members in a divided log. The members of a part share its state, because all of them would compute the same one
// (divided_world.cpp compares them); an event reaches them all at once, some time after it was sent. Their pools are
// simple: they return what is ordered as soon as it is not in use.

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>

#include "tests/simulation/checks.hpp"
#include "tests/simulation/random.hpp"
#include "tests/simulation/schedule.hpp"
#include "tokens/member.hpp"
#include "tokens/parts.hpp"

namespace turnstile::simulation {
namespace {

using namespace tokens;

struct Size {
  std::size_t members, limiters;
  std::uint32_t parts;
  [[nodiscard]] std::size_t changes_per_second() const { return members / 10; }
};
constexpr int kEach = 2;  // limiters that a member uses
constexpr Time kStep = 50 * kMillisecond;
constexpr std::uint32_t kLeaseMs = 10'000;

class LargeWorld {
 public:
  explicit LargeWorld(Size size) : size_(size) {
    for (std::uint32_t part = 1; part < size_.parts; ++part) parts_[part].state = opened(part);
    for (std::size_t limiter = 0; limiter < size_.limiters; ++limiter)
      limits_.push_back(static_cast<Count>(random_.between(1, 12)));
    for (std::size_t i = 0; i < size_.members; ++i) {
      for (int k = 0; k < kEach; ++k) use(random_.index(size_.limiters));
    }
  }

  void run(Time time, std::size_t changes_per_second) {
    for (const Time end = now_ + time; now_ < end; now_ += kStep) {
      for (std::size_t i = 0; i < changes_per_second * static_cast<std::size_t>(kStep) / kSecond; ++i)
        want(random_.index(seats_.size()), static_cast<Count>(random_.between(0, 3)));
      for (auto& [number, part] : parts_) step(part);
    }
  }
  void want_nothing() {
    for (std::size_t seat = 0; seat < seats_.size(); ++seat) want(seat, 0);
  }
  void must_be_quiet() const {
    for (const auto& [number, part] : parts_) {
      for (const auto& [name, limiter] : part.state.limiters) ASSERT_EQ(limiter.held(), 0U) << name;
    }
  }
  /// A member that wants a permit has got one, or others that want it had their turns.
  [[nodiscard]] std::size_t served() const { return served_; }
  [[nodiscard]] std::size_t events() const { return events_; }
  [[nodiscard]] std::size_t joined() const {
    std::size_t sum = 0;
    for (const auto& [number, part] : parts_) sum += part.state.members.size();
    return sum;
  }
  [[nodiscard]] std::size_t most_in_a_part() const {
    std::size_t most = 0;
    for (const auto& [number, part] : parts_) most = std::max(most, part.state.members.size());
    return most;
  }

 private:
  /// A limiter that a process uses, and its member. A process with two limiters in one part has two members there: that is
  /// more work, not less.
  struct Seat {
    Member member;
    std::size_t limiter;
    std::string name;
    Count granted = 0, given_back = 0, surrender_to = 0, wants = 0;
    [[nodiscard]] Count held() const { return granted - given_back; }
    [[nodiscard]] Count in_use() const { return std::min(wants, held()); }
  };
  struct Part {
    State state;
    std::vector<Seat*> seats;
    std::deque<std::pair<Time, Event>> on_the_way;
  };

  [[nodiscard]] State opened(std::uint32_t part) const {
    State directory;
    directory.parts = size_.parts;
    State state = first_state(directory, part);
    apply(state, 0, {1, 1, 1, Opened{.division = 0, .part = part, .sets = {}}});
    return state;
  }

  void use(std::size_t limiter) {
    MemberSettings settings;
    settings.about = {.host = "host",
                      .pid = 1,
                      .client = "client",
                      .lease_ms = kLeaseMs,
                      .weight = 1,
                      .knows = 2,
                      .was = {},
                      .knows_rest = true};
    settings.next_id = [this] { return random_.next() | 1; };
    seats_.push_back({.member = Member(settings), .limiter = limiter, .name = "limiter-" + std::to_string(limiter)});
    Seat& seat = seats_.back();
    seat.member.declare(seat.name, limits_[limiter], false);
    parts_.at(part_of(seat.name, size_.parts)).seats.push_back(&seat);
  }

  void want(std::size_t which, Count wants) {
    Seat& seat = seats_[which];
    seat.wants = wants;
    give_back(seat);
    seat.member.demand(seat.name, {.wants = wants, .busy = seat.in_use()});
  }

  static void give_back(Seat& seat) {
    const Count idle = seat.held() - seat.in_use();
    const Count due = seat.surrender_to - std::min(seat.surrender_to, seat.given_back);
    seat.given_back += std::min(idle, due);
    seat.member.given_back(seat.name, seat.given_back);
  }

  void step(Part& part) {
    for (Seat* seat : part.seats) {
      if (seat->member.next_tick() <= now_) seat->member.tick(part.state, now_);
      obey(*seat);
      for (Event& event : seat->member.take_events())
        part.on_the_way.emplace_back(now_ + random_.between(1, 100) * kMillisecond, std::move(event));
    }
    // In the order of sending: a part's broker takes each member's records in that order.
    for (; !part.on_the_way.empty() && part.on_the_way.front().first <= now_; part.on_the_way.pop_front())
      write(part, part.on_the_way.front().second);
  }

  void write(Part& part, const Event& event) {
    const Position position = part.state.last + 1;
    std::map<std::string, Count> before;
    for (const auto& [name, limiter] : part.state.limiters) before[name] = limiter.held();
    const Effects effects = apply(part.state, position, event);
    ++events_;
    for (const auto& [name, limiter] : part.state.limiters) {
      ASSERT_LE(limiter.held(), std::max(limiter.limit(), before[name])) << name;
      ASSERT_EQ(part_of(name, size_.parts), part.state.part) << name;
    }
    for (Seat* seat : part.seats) {
      seat->member.read(part.state, position, event, effects, now_);
      obey(*seat);
    }
    must_fit_outside(part);
  }

  void obey(Seat& seat) {
    for (const tokens::Order& order : seat.member.take_orders()) {
      switch (order.kind) {
        case tokens::Order::Kind::open: served_ += order.total - seat.granted, seat.granted = order.total; break;
        case tokens::Order::Kind::surrender: seat.surrender_to = order.total; break;
        case tokens::Order::Kind::forfeit: seat.granted = seat.given_back = seat.surrender_to = order.total; break;
      }
      give_back(seat);
    }
  }

  void must_fit_outside(const Part& part) {
    running_.assign(size_.limiters, 0);
    for (const Seat* seat : part.seats) running_[seat->limiter] += seat->held();
    for (const Seat* seat : part.seats) ASSERT_LE(running_[seat->limiter], limits_[seat->limiter]) << seat->name;
  }

  const Size size_;
  Random random_{42};
  Time now_ = kSecond;
  std::vector<Count> limits_;
  std::deque<Seat> seats_;
  std::map<std::uint32_t, Part> parts_;
  std::vector<Count> running_;
  std::size_t served_ = 0, events_ = 0;
};

void stay_within_the_limits(Size size) {
  LargeWorld world(size);
  world.run(3 * kSecond, 0);
  EXPECT_EQ(world.joined(), size.members * kEach);
  EXPECT_LT(world.most_in_a_part(), kMostMembers);
  const std::size_t before = world.served();
  world.run(5 * kSecond, size.changes_per_second());
  EXPECT_GT(world.served(), before + size.changes_per_second()) << "permits move all the time";
  world.want_nothing();
  world.run(5 * kSecond, 0);
  world.must_be_quiet();
}

TEST(LargeSimulation, a_thousand_members_stay_within_a_hundred_limits) {
  stay_within_the_limits({.members = 1'000, .limiters = 100, .parts = 8});
}

/// 20 s of CPU time and 900 MB.
TEST(LargeSimulation, ten_thousand_members_stay_within_a_thousand_limits) {
  if (std::getenv("TURNSTILE_SIMULATE_LARGE") == nullptr) GTEST_SKIP() << "./dev test all runs it";
  stay_within_the_limits({.members = 10'000, .limiters = 1'000, .parts = 64});
}

}  // namespace
}  // namespace turnstile::simulation
