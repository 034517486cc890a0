// The member (tokens/member.hpp): the events that it writes, and the orders that it gives to its pools. Many members
// under chaos are in tests/simulation.

#include "tokens/member.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>

#include "tokens/wire.hpp"

namespace turnstile::tokens {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Micros kMs = 1'000;
constexpr Micros kLease = 8'000 * kMs;
constexpr Micros kMargin = kLease / 8;

/// A log, and members that read each record at once. Their pools obey each order at once.
class TokensMember : public ::testing::Test {
 protected:
  Member& add(const std::string& client, std::uint32_t most_limiters = 0) {
    MemberSettings settings;
    settings.about = {.host = "host",
                      .pid = 1,
                      .client = client,
                      .lease_ms = kLease / kMs,
                      .weight = 1,
                      .knows = kNewestVersion,
                      .most_limiters = most_limiters};
    settings.next_id = [this] { return ++last_id_; };
    settings.checkpoint_every = 4;
    members_.push_back(std::make_unique<Member>(std::move(settings)));
    Member& member = *members_.back();
    member.declare("psp", 4, false);
    return member;
  }
  Member& joined(const std::string& client) {
    Member& member = add(client);
    settle();
    EXPECT_EQ(member.phase(), Member::Phase::joined);
    return member;
  }

  Effects append(const Event& event) {
    log_.push_back(event);
    const Effects effects = apply(state_, state_.last + 1, event);
    for (const auto& member : members_) member->read(state_, state_.last, event, effects, now_);
    return effects;
  }
  /// Ticks, writes and reads until no member has anything to write at this time.
  void settle() {
    for (bool said = true; std::exchange(said, false);) {
      for (const auto& member : members_) {
        member->tick(state_, now_);
        for (const Event& event : member->take_events()) {
          append(event);
          said = true;
        }
        for (const Order& order : member->take_orders()) {
          orders_.push_back(order);
          if (order.kind == Order::Kind::surrender && gates_obey_) member->given_back(order.limiter, order.total);
          said = true;
        }
      }
    }
  }
  void pass(Micros time, Micros step = 10 * kMs) {
    for (const Micros end = now_ + time; now_ < end; settle()) now_ += step;
  }
  void want(Member& member, Count wants, Count busy = 0) {
    member.demand("psp", {.wants = wants, .busy = busy});
    settle();
  }
  [[nodiscard]] bool was_asked_back(const std::string& limiter, Count total) const {
    return std::count(orders_.begin(), orders_.end(), Order{Order::Kind::surrender, limiter, total}) > 1;
  }
  [[nodiscard]] Count held(const Member& member) const { return state_.held("psp", member.id()); }
  template <class Body>
  [[nodiscard]] std::size_t said(std::size_t from = 0) const {
    return static_cast<std::size_t>(std::count_if(log_.begin() + static_cast<std::ptrdiff_t>(from), log_.end(),
                                                  [](const auto& e) { return std::holds_alternative<Body>(e.body); }));
  }

  State state_;
  std::vector<Event> log_;
  std::vector<Order> orders_;
  std::vector<std::unique_ptr<Member>> members_;
  MemberId last_id_ = 100;
  bool gates_obey_ = true;  ///< whether idle permits are surrendered as ordered
  Micros now_ = 1'000'000'000;
};

TEST_F(TokensMember, asks_and_is_told_to_open) {
  Member& member = joined("a");
  want(member, 3);
  EXPECT_EQ(held(member), 3U);
  EXPECT_THAT(orders_, ElementsAre(Order{Order::Kind::open, "psp", 3}));
}

TEST_F(TokensMember, joins_with_more_limiters_than_one_record_can_name) {
  Member& member = add("a", kMostLimiters);
  const auto name_of = [](int i) { return std::to_string(i) + std::string(220, 'x'); };
  for (int i = 0; i < 4'700; ++i) member.declare(name_of(i), 4, false);
  settle();
  EXPECT_EQ(state_.limiters.size(), 4'701U);
  for (const Event& event : log_) EXPECT_LE(encode(event).size(), kLongestRecord);
  member.demand(name_of(4'699), {.wants = 3});
  settle();
  EXPECT_EQ(state_.held(name_of(4'699), member.id()), 3U);
}

TEST_F(TokensMember, takes_a_wish_back_that_nobody_has_any_more_while_others_wait) {
  Member& a = joined("a");
  Member& b = joined("b");
  want(a, 4, 4);
  want(b, 4, 2);
  ASSERT_EQ(state_.holding("psp", b.id())->wants, 4U);
  want(b, 2, 2);
  pass(300 * kMs);
  EXPECT_EQ(state_.holding("psp", b.id())->wants, 2U) << "long before its next Keep";
  EXPECT_EQ(held(b), 2U);
}

TEST_F(TokensMember, says_nothing_but_that_it_is_there_while_nothing_changes) {
  Member& a = joined("a");
  Member& b = joined("b");
  want(a, 2);
  want(b, 2);
  pass(kLease);  // the first Keep events still contain what is new
  const std::size_t from = log_.size();
  pass(2 * kLease);
  EXPECT_EQ(log_.size() - from, said<Keep>(from));
  EXPECT_EQ(said<Keep>(from), 16U) << "four a lease, of two members";
  for (auto event = log_.begin() + static_cast<std::ptrdiff_t>(from); event != log_.end(); ++event)
    EXPECT_TRUE(std::get<Keep>(event->body).lines.empty()) << "the log shows all of it";
}

TEST_F(TokensMember, its_deadline_counts_from_the_sending_and_not_from_the_answer) {
  Member& member = joined("a");
  const Micros sent = now_ += kLease / 2;
  member.tick(state_, now_);
  const auto events = member.take_events();
  now_ += 3'000 * kMs;
  for (const Event& event : events) append(event);
  EXPECT_EQ(member.open_until(), sent + kLease - kMargin);
}

TEST_F(TokensMember, is_closed_until_it_has_joined) {
  Member& member = add("a");
  EXPECT_EQ(member.open_until(), 0);
  member.tick(state_, now_);
  EXPECT_EQ(member.open_until(), 0) << "it has only said that it joins";
  settle();
  EXPECT_EQ(member.open_until(), now_ + kLease - kMargin);
}

TEST_F(TokensMember, what_the_state_did_not_count_keeps_nobodys_lease) {
  Member& member = joined("a");
  const Micros before = member.open_until();
  now_ += 1'000 * kMs;
  member.sending_failed();
  member.tick(state_, now_);
  const auto events = member.take_events();
  ASSERT_TRUE(std::holds_alternative<Joined>(events.at(0).body));
  EXPECT_EQ(append(events.at(1)).outcome, Effects::Outcome::not_allowed) << "its epoch never began";
  EXPECT_EQ(member.open_until(), before);
}

TEST_F(TokensMember, after_a_sleep_only_what_is_sent_afterwards_counts) {
  Member& member = joined("a");
  now_ += kLease / 2;
  member.tick(state_, now_);
  const auto events = member.take_events();
  now_ += 2'000 * kMs;
  member.distrust(now_);
  EXPECT_EQ(member.open_until(), 0);
  for (const Event& event : events) append(event);
  EXPECT_EQ(member.open_until(), 0);
  settle();
  EXPECT_EQ(member.open_until(), now_ + kLease - kMargin);
}

TEST_F(TokensMember, goes_on_in_a_new_epoch_with_what_it_holds) {
  Member& member = joined("a");
  want(member, 3);
  const MemberId id = member.id();
  member.sending_failed();
  settle();
  EXPECT_EQ(member.id(), id);
  EXPECT_EQ(member.epoch(), 2U);
  EXPECT_EQ(held(member), 3U);
  EXPECT_EQ(state_.members.at(id).epoch, 2U);
  EXPECT_THAT(orders_, ElementsAre(Order{Order::Kind::open, "psp", 3}));
}

TEST_F(TokensMember, a_life_that_was_expired_is_over_and_another_begins) {
  Member& a = joined("a");
  Member& b = joined("b");
  want(a, 2);
  orders_.clear();
  const MemberId id = a.id();
  append({b.id(), 1, 90, Expire{id, state_.last}});
  EXPECT_EQ(a.expired(), 1U);
  EXPECT_EQ(a.open_until(), 0);
  EXPECT_NE(a.id(), id);
  now_ += kMs;
  a.tick(state_, now_);
  EXPECT_THAT(a.take_orders(), ElementsAre(Order{Order::Kind::forfeit, "psp", 0}));
}

/// A pool that opened the permits first would start handlers with them.
TEST_F(TokensMember, opens_no_permit_that_is_lost_before_its_gate_has_heard_of_it) {
  Member& a = joined("a");
  Member& b = joined("b");
  a.demand("psp", {.wants = 2});
  a.tick(state_, now_);
  for (const Event& event : a.take_events()) append(event);
  ASSERT_EQ(held(a), 2U);
  append({b.id(), 1, 90, Expire{a.id(), state_.last}});
  EXPECT_THAT(a.take_orders(), ElementsAre(Order{Order::Kind::forfeit, "psp", 0}));
}

TEST_F(TokensMember, what_is_said_in_its_name_by_another_ends_the_life) {
  Member& member = joined("a");
  const MemberId id = member.id();
  append({id, 1, 50, Acquire{{.limiter = "psp", .limit = 4, .wants = 4}}});
  EXPECT_NE(member.id(), id);
  EXPECT_EQ(member.open_until(), 0);
}

TEST_F(TokensMember, what_is_said_in_its_name_and_does_not_count_ends_nothing) {
  Member& member = joined("a");
  const MemberId id = member.id();
  EXPECT_EQ(append({id, 8, 1, Left{}}).outcome, Effects::Outcome::not_allowed) << "an epoch begins with Joined";
  EXPECT_EQ(append({id, 0, 50, Left{}}).outcome, Effects::Outcome::old_epoch);
  EXPECT_EQ(member.id(), id);
  EXPECT_GT(member.open_until(), now_);
  want(member, 4);
  EXPECT_EQ(held(member), 4U);
}

TEST_F(TokensMember, a_second_copy_of_what_it_said_is_no_forgery) {
  Member& member = joined("a");
  const MemberId id = member.id();
  const std::vector<Event> log = log_;
  for (const Event& event : log) append(event);
  EXPECT_EQ(member.id(), id);
  EXPECT_GT(member.open_until(), now_);
}

TEST_F(TokensMember, gives_idle_permits_back_only_where_others_wait) {
  Member& a = joined("a");
  Member& b = joined("b");
  want(a, 4);
  EXPECT_EQ(held(a), 4U);
  want(a, 1, 1);
  pass(1'000 * kMs);
  EXPECT_EQ(held(a), 4U) << "nobody waits";
  want(b, 3);
  EXPECT_EQ(held(b), 2U) << "the fair share, at once";
  pass(20 * kMs);
  EXPECT_EQ(held(a), 1U);
  EXPECT_EQ(held(b), 3U);
}

TEST_F(TokensMember, takes_turns_where_members_are_more_than_permits) {
  std::vector<Member*> all;
  for (const char* name : {"a", "b", "c"}) {
    all.push_back(&add(name));
    all.back()->declare("psp", 1, false);
  }
  settle();
  for (Member* member : all) want(*member, 1);
  std::vector<MemberId> turns;
  for (int i = 0; i < 590; ++i) {
    pass(kMs, kMs);
    for (const Member* member : all) {
      if (held(*member) > 0 && (turns.empty() || turns.back() != member->id())) turns.push_back(member->id());
    }
  }
  EXPECT_THAT(turns, ElementsAre(101, 102, 103, 101, 102, 103)) << "a turn takes 100 ms";
}

/// The turn once began with the first permit, and was over before the last permit was there.
TEST_F(TokensMember, the_turn_of_one_that_collects_several_begins_when_it_has_them) {
  Member& wide = joined("wide");
  Member& busy = joined("busy");
  want(busy, 4, 4);
  ASSERT_EQ(held(busy), 4U);
  wide.demand("psp", {.wants = 4, .least = 4});
  // The handlers of the other member end one after another. Each ends more than a turn after the one before it.
  gates_obey_ = false;
  for (Count ended = 1; ended <= 4; ++ended) {
    pass(300 * kMs);
    busy.demand("psp", {.wants = 4, .busy = 4 - ended});
    busy.given_back("psp", ended);
    settle();
    EXPECT_EQ(held(wide), ended);
  }
  pass(50 * kMs);
  EXPECT_EQ(held(wide), 4U);
  EXPECT_FALSE(was_asked_back("psp", 4)) << "now its turn begins";
  pass(60 * kMs);
  EXPECT_TRUE(was_asked_back("psp", 4)) << "and ends";
}

/// A wish that timed out once kept permits from others until the next Keep.
TEST_F(TokensMember, says_that_it_wants_less_where_others_wait) {
  Member& a = joined("a");
  Member& b = joined("b");
  gates_obey_ = false;  // b's handlers are at work
  want(b, 4, 4);
  a.demand("psp", {.wants = 4, .urgent = 4, .least = 4});
  settle();
  EXPECT_EQ(state_.holding("psp", b.id())->share, 0U) << "all that comes free is for a";
  pass(5 * kMs, kMs);
  a.demand("psp", {});
  pass(110 * kMs, kMs);
  EXPECT_EQ(state_.holding("psp", a.id())->wants, 0U);
  EXPECT_EQ(state_.holding("psp", b.id())->share, 4U);
}

TEST_F(TokensMember, lets_go_of_a_limiter_that_nobody_uses) {
  Member& member = joined("a");
  want(member, 3);
  orders_.clear();
  member.undeclare("psp", now_);
  settle();
  EXPECT_FALSE(state_.limiters.contains("psp"));
  pass(kLease);
  EXPECT_FALSE(state_.limiters.contains("psp")) << "no Keep names it";
  member.declare("psp", 2, false);
  want(member, 2);
  EXPECT_EQ(held(member), 2U);
  EXPECT_THAT(orders_, ElementsAre(Order{Order::Kind::open, "psp", 2}));
}

/// After the member reports that it no longer uses a limiter, and before the log answers, another pool may be opened
/// for it. The permits of the old pool do not belong to the new one.
TEST_F(TokensMember, opens_nothing_for_a_limiter_that_it_has_let_go_of_and_wants_again) {
  Member& member = joined("a");
  want(member, 3);
  orders_.clear();
  member.undeclare("psp", now_);
  member.declare("psp", 4, false);
  member.demand("psp", {.wants = 1, .busy = 0});
  append({0, 0, 0, Unknown{}});
  EXPECT_THAT(member.take_orders(), IsEmpty());
  settle();
  EXPECT_EQ(held(member), 1U);
  EXPECT_THAT(orders_, ElementsAre(Order{Order::Kind::open, "psp", 1}));
}

TEST_F(TokensMember, a_limiter_that_was_let_go_of_and_not_said_is_let_go_of_again) {
  Member& member = joined("a");
  want(member, 3);
  member.undeclare("psp", now_);
  member.take_events();  // these events are lost
  member.sending_failed();
  settle();
  pass(kLease);
  EXPECT_FALSE(state_.limiters.contains("psp"));
}

TEST_F(TokensMember, says_which_limiter_the_domain_has_no_room_for) {
  Member& member = joined("a");
  for (std::size_t i = 0; i < kDefaultLimiters - 1; ++i)
    append({0, 0, 0, LimitSet{"other-" + std::to_string(i), 1, state_.last}});
  EXPECT_EQ(state_.limiters.size(), kDefaultLimiters);
  member.declare("mail", 1, false);
  settle();
  EXPECT_TRUE(member.is_refused("mail"));
  EXPECT_FALSE(member.is_refused("psp"));
  append({0, 0, 0, LimitSet{"other-0", std::nullopt, state_.last}});
  pass(kLease);
  EXPECT_FALSE(member.is_refused("mail")) << "there is room now";
}

TEST_F(TokensMember, proposes_to_expire_who_was_silent_for_its_lease) {
  Member& a = joined("a");
  joined("b");
  want(*members_[1], 2);
  const MemberId silent = members_[1]->id();
  members_.pop_back();
  pass(kLease - 10 * kMs);
  EXPECT_EQ(said<Expire>(), 0U);
  pass(20 * kMs);
  EXPECT_EQ(said<Expire>(), 1U);
  EXPECT_FALSE(state_.members.contains(silent));
  want(a, 4);
  EXPECT_EQ(held(a), 4U);
}

TEST_F(TokensMember, only_the_oldest_speaks_of_the_silent) {
  for (const char* name : {"a", "b", "c", "d", "silent"}) joined(name);
  members_.pop_back();
  pass(2 * kLease);
  EXPECT_EQ(said<Expire>(), 1U);
  EXPECT_EQ(state_.members.size(), 4U);
}

/// The simulator found this: a Drained event that was lost was never written again, and the member drained forever.
TEST_F(TokensMember, says_again_that_it_is_drained) {
  Member& a = joined("a");
  Member& b = joined("b");
  a.claim({"orders", 0}, 1);
  settle();
  append({b.id(), 1, 90, PartitionsClaimed{{{{"orders", 0}, 2, kNowhere}}}});
  ASSERT_TRUE(state_.members.at(a.id()).draining);
  now_ += kMs;
  a.tick(state_, now_);
  a.take_events();  // these events are lost
  a.sending_failed();
  settle();
  EXPECT_FALSE(state_.members.at(a.id()).draining);
}

TEST_F(TokensMember, says_again_what_it_has_given_up) {
  Member& member = joined("a");
  member.claim({"orders", 0}, 1);
  settle();
  member.revoke({{"orders", 0}});
  member.tick(state_, now_);
  member.take_events();  // these events are lost
  member.sending_failed();
  settle();
  pass(kLease);
  EXPECT_THAT(state_.members.at(member.id()).owns, IsEmpty());
}

/// The simulator found this: without a database all fences are 0, and a claim that was just given up looked like the
/// new one.
TEST_F(TokensMember, claims_again_what_it_has_only_just_given_up) {
  Member& member = joined("a");
  member.claim({"orders", 0}, 0);
  settle();
  member.revoke({{"orders", 0}});
  member.tick(state_, now_);
  const auto revoked = member.take_events();
  ASSERT_EQ(revoked.size(), 1U);
  member.claim({"orders", 0}, 0);
  now_ += kMs;
  member.tick(state_, now_);
  EXPECT_THAT(member.take_events(), IsEmpty())
      << "it can name the claim that it follows only when it has read of its own end";
  EXPECT_TRUE(member.is_claiming());
  append(revoked.front());
  settle();
  EXPECT_FALSE(member.is_claiming());
  EXPECT_EQ(state_.partitions.at({"orders", 0}).owner, member.id());
}

TEST_F(TokensMember, is_not_drained_while_something_runs) {
  Member& a = joined("a");
  Member& b = joined("b");
  a.claim({"orders", 0}, 1);
  want(a, 1, 1);
  append({b.id(), 1, 90, PartitionsClaimed{{{{"orders", 0}, 2, kNowhere}}}});
  now_ += kMs;
  a.tick(state_, now_);
  EXPECT_THAT(a.take_orders(), ElementsAre(Order{Order::Kind::forfeit, "psp", 1})) << "the fence has taken it";
  EXPECT_TRUE(state_.members.at(a.id()).draining) << "a handler overstays";
  want(a, 0, 0);
  EXPECT_FALSE(state_.members.at(a.id()).draining);
}

TEST_F(TokensMember, halts_where_another_has_come_to_another_state) {
  Member& a = joined("a");
  Member& b = joined("b");
  want(b, 1);
  pass(kLease);
  EXPECT_GT(a.agreed(), 0) << "they agree so far";
  const Position at = state_.last / 4 * 4;
  append({b.id(), 1, 90, Keep{{}, Checkpoint{at, 12'345}}});
  EXPECT_EQ(a.phase(), Member::Phase::halted);
  EXPECT_THAT(a.why_halted(),
              HasSubstr("b (host, pid 1) have computed different states at position " + std::to_string(at)));
  EXPECT_EQ(a.open_until(), 0);
  EXPECT_THAT(a.take_orders(), ElementsAre(Order{Order::Kind::forfeit, "psp", 0}));
}

TEST_F(TokensMember, halts_where_it_does_not_know_the_version) {
  Member& member = joined("a");
  append({0, 0, 0, VersionSet{kNewestVersion + 1}});
  EXPECT_EQ(member.phase(), Member::Phase::joined) << "refused, since this member does not know it";
  state_.version = kNewestVersion + 1;
  append({0, 0, 0, Unknown{}});
  EXPECT_THAT(member.why_halted(), HasSubstr("run a newer program"));
}

TEST_F(TokensMember, leaves_and_gives_everything_back_at_once) {
  Member& a = joined("a");
  Member& b = joined("b");
  want(a, 4);
  want(b, 4);
  a.leave();
  EXPECT_EQ(a.open_until(), 0);
  settle();
  EXPECT_EQ(a.phase(), Member::Phase::left);
  EXPECT_EQ(held(b), 4U);
}

}  // namespace
}  // namespace turnstile::tokens
