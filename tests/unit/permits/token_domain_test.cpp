// Members of a domain that work, over a log in memory: joining, limits that change at run time, a log that becomes
// unavailable, snapshots.

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <condition_variable>
#include <future>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/unit/permits/token_domain_fixture.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/testing/token_log.hpp"
#include "turnstile/token_service.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using test::Cluster;
using test::eventually;
using test::take_all;
using testing::MemoryTokenLog;
using testing::MemoryTokenTopic;

std::int64_t held_by_all(const TokenDomain& domain, const std::string& limiter) {
  std::int64_t held = 0;
  for (const auto& entry : domain.permits().limiters) {
    for (const auto& holder : entry.holders) held += entry.limiter == limiter ? holder.held : 0;
  }
  return held;
}

TEST(TokenDomain, shares_a_limit_among_its_members) {
  Cluster cluster;
  const auto a = cluster.join(), b = cluster.join();
  const auto of_a = a->open("psp", 4), of_b = b->open("psp", 4);
  auto held_by_a = take_all(*of_a, 4);
  EXPECT_FALSE(of_b->try_acquire());
  of_b->expect(1'000);
  of_b->when_free([] {});
  // b wants some permits. a gives back the permits above its share as soon as they are free.
  EXPECT_TRUE(eventually([&] {
    const auto view = b->permits();
    return !view.limiters.empty() && view.limiters[0].holders.size() == 2;
  }));
  held_by_a.clear();
  const auto held_by_b = take_all(*of_b, 2);
  EXPECT_LE(held_by_all(*a, "psp"), 4);
}

TEST(TokenDomain, gives_everything_back_when_a_member_leaves) {
  Cluster cluster;
  const auto a = cluster.join();
  const auto of_a = a->open("psp", 3);
  {
    const auto b = cluster.join();
    take_all(*b->open("psp", 3), 3).clear();
  }
  EXPECT_EQ(take_all(*of_a, 3).size(), 3u);
}

TEST(TokenDomain, an_operators_limit_goes_before_what_configurations_say_until_it_is_unset) {
  Cluster cluster;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 4);
  auto held = take_all(*psp, 4);
  ASSERT_TRUE(a->set_limit("psp", 1, 20s));
  EXPECT_EQ(psp->state().limit, 1);
  EXPECT_EQ(held_by_all(*a, "psp"), 4) << "nothing is revoked";
  held.pop_back();
  EXPECT_TRUE(eventually([&] { return held_by_all(*a, "psp") == 3; })) << "and nothing is granted anew";
  EXPECT_FALSE(psp->try_acquire());
  ASSERT_TRUE(a->set_limit("psp", std::nullopt, 20s));
  EXPECT_EQ(psp->state().limit, 4);
  EXPECT_EQ(take_all(*psp, 1).size(), 1u);
}

TEST(TokenDomain, a_limit_of_zero_pauses_and_a_billion_is_as_good_as_none) {
  Cluster cluster;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 2);
  ASSERT_TRUE(a->set_limit("psp", 0, 20s));
  psp->when_free([] {});
  EXPECT_TRUE(eventually([&] { return a->permits().limiters.at(0).limit == 0; }));
  EXPECT_FALSE(psp->try_acquire());
  ASSERT_TRUE(a->set_limit("psp", 1'000'000'000, 20s));
  EXPECT_EQ(take_all(*psp, 1'000).size(), 1'000u);
  EXPECT_THROW(a->set_limit("psp", 1'000'000'001, 1s), Error);
  EXPECT_THROW(a->set_limit("psp", -1, 1s), Error);
}

TEST(TokenDomain, of_two_configurations_the_lower_limit_holds) {
  Cluster cluster;
  const auto a = cluster.join(), b = cluster.join();
  const auto of_a = a->open("psp", 64), of_b = b->open("psp", 3);
  EXPECT_TRUE(eventually([&] { return of_a->state().limit == 3 && of_b->state().limit == 3; }));
  EXPECT_TRUE(eventually([&] {
    const auto limiters = a->permits().limiters;
    return limiters.size() == 1 && limiters[0].configured.size() == 2;
  })) << "what both have configured is reported";
}

TEST(TokenDomain, starts_nothing_past_its_lease_while_the_log_is_away_and_goes_on_when_it_is_back) {
  Cluster cluster;
  cluster.settings.lease = 500ms;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 2);
  auto held = take_all(*psp, 2);
  EXPECT_TRUE(held.front().holds());
  cluster.topic->away(true);
  EXPECT_TRUE(eventually([&] { return !held.front().holds(); }));
  EXPECT_TRUE(eventually([&] { return held.front().lost().stop_requested(); })) << "and is told soon after";
  held.clear();
  EXPECT_TRUE(eventually([&] { return !psp->try_acquire(); }));
  EXPECT_EQ(a->halted(), "");
  cluster.topic->away(false);
  EXPECT_EQ(take_all(*psp, 2).size(), 2u);
}

TEST(TokenDomain, what_is_no_event_changes_nothing) {
  Cluster cluster;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 2);
  for (int i = 0; i < 100; ++i)
    cluster.topic->append(std::string(static_cast<std::size_t>(i), static_cast<char>(i * 37)));
  EXPECT_EQ(take_all(*psp, 2).size(), 2u);
  EXPECT_EQ(a->halted(), "");
}

TEST(TokenDomain, a_newcomer_begins_from_a_snapshot_when_the_log_was_trimmed) {
  Cluster cluster;
  cluster.settings.lease = 500ms;
  cluster.settings.snapshot_every = 8;
  const auto a = cluster.join(), b = cluster.join();
  ASSERT_TRUE(a->set_limit("psp", 3, 20s));
  const auto of_a = a->open("psp", 9);
  EXPECT_TRUE(eventually([&] { return cluster.topic->begin() > 8; })) << "two members agree, and a snapshot is kept";
  const auto c = cluster.join();
  EXPECT_EQ(c->permits().limiters.at(0).set, 3);
  EXPECT_EQ(take_all(*c->open("psp", 9), 3).size(), 3u);
}

TEST(TokenDomain, a_newcomer_passes_over_the_snapshots_of_one_that_read_late) {
  Cluster cluster;
  cluster.settings.lease = 500ms;
  cluster.settings.snapshot_every = 8;
  const auto a = cluster.join(), b = cluster.join();
  ASSERT_TRUE(a->set_limit("psp", 3, 20s));
  ASSERT_TRUE(eventually([&] { return cluster.topic->begin() > 8; }));
  const auto oldest = cluster.topic->snapshot(1);
  ASSERT_TRUE(oldest);
  for (int i = 0; i < 20; ++i) cluster.topic->save(oldest->bytes);
  const auto c = cluster.join();
  EXPECT_EQ(c->permits().limiters.at(0).set, 3);
}

TEST(TokenDomain, a_log_without_its_beginning_and_without_a_snapshot_is_refused_with_what_to_do) {
  Cluster cluster;
  cluster.join();
  cluster.topic->cut(2);
  try {
    join_token_domain(std::make_unique<MemoryTokenLog>(cluster.topic), cluster.settings, cluster.quiet);
    FAIL() << "it joined";
  } catch (const TokenLogBroken& error) {
    EXPECT_NE(std::string(error.what()).find("begins at position 2"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("wait: they save a snapshot within"), std::string::npos) << error.what();
  }
}

TEST(TokenDomain, a_gap_in_the_log_ends_all_starts_with_one_clear_error) {
  Cluster cluster;
  cluster.settings.lease = 60'000ms;  // so that nothing is written while the log is cut off
  const auto a = cluster.join();
  const auto psp = a->open("psp", 9);
  ASSERT_TRUE(a->set_limit("psp", 2, 20s));
  auto held = take_all(*psp, 2);
  cluster.topic->away(true);
  for (int i = 0; i < 3; ++i) cluster.topic->append("x");
  cluster.topic->cut(cluster.topic->end() - 1);
  cluster.topic->away(false);
  EXPECT_TRUE(eventually([&] { return !a->halted().empty(); }));
  EXPECT_NE(a->halted().find("no snapshot reaches that far"), std::string::npos) << a->halted();
  EXPECT_NE(a->halted().find("set them again before the members start: turnstile limits set --ahead psp 2"),
            std::string::npos)
      << a->halted();
  EXPECT_TRUE(held.front().lost().stop_requested());
  held.clear();
  EXPECT_FALSE(psp->try_acquire());
}

/// How many permits this limiter alone can have at once.
std::size_t most_to_be_had(ports::Limiter& limiter) {
  std::vector<Permit> taken;
  while (Permit permit = limiter.try_acquire()) taken.push_back(std::move(permit));
  return taken.size();
}

std::int64_t reserved_by_all(const TokenDomain& domain, const std::string& limiter) {
  for (const auto& entry : domain.permits().limiters) {
    if (entry.limiter == limiter) return entry.reserved;
  }
  return 0;
}

/// The test cuts the connection of one member to the log. Another member, the replacement, works beside it.
TEST(TokenDomain, a_member_that_is_cut_off_keeps_its_reserve_and_its_replacement_waits_for_it) {
  Cluster cluster;
  cluster.settings.lease = 400ms;
  cluster.settings.reserve = 1;
  cluster.settings.reserve_for = 1;
  cluster.settings.reserve_time = 2'500ms;
  const auto cable = std::make_shared<testing::MemoryTokenCable>();
  const auto cut_off =
      join_token_domain(std::make_unique<MemoryTokenLog>(cluster.topic, cable), cluster.settings, cluster.quiet);
  const auto of_cut_off = cut_off->open("psp", 5);
  EXPECT_TRUE(eventually([&] { return reserved_by_all(*cut_off, "psp") == 1; }));
  cable->cut = true;
  Permit on_reserve;
  EXPECT_TRUE(eventually([&] { return static_cast<bool>(on_reserve = of_cut_off->try_acquire()); }));
  const auto replacement = cluster.join();
  const auto of_replacement = replacement->open("psp", 5);
  const auto held = take_all(*of_replacement, 4);
  EXPECT_TRUE(eventually([&] { return replacement->permits().limiters.at(0).holders.size() == 1; })) << "expired";
  EXPECT_EQ(reserved_by_all(*replacement, "psp"), 1);
  EXPECT_EQ(replacement->permits().limiters.at(0).holders.at(0).reserved, 0) << "it is not its own";
  EXPECT_FALSE(of_replacement->try_acquire()) << "the fifth is in use where nobody can see it";
  EXPECT_TRUE(on_reserve.holds());
  EXPECT_TRUE(eventually([&] { return on_reserve.lost().stop_requested(); })) << "it ends before others count it free";
  EXPECT_FALSE(on_reserve.holds());
  EXPECT_FALSE(of_cut_off->try_acquire());
  EXPECT_TRUE(eventually([&] { return replacement->permits().limiters.at(0).holders.at(0).reserved == 1; }));
}

class LostToken : public ::testing::TestWithParam<std::chrono::milliseconds> {
 protected:
  LostToken() {
    tokens_.limit("psp", 1);
    held_ = std::get<Granted>(tokens_.request("psp", 1, Priority::normal, 20s));
  }

  Cluster cluster_;
  const std::shared_ptr<TokenDomain> domain_ = cluster_.join();
  TokenService tokens_{domain_, {.hold_timeout = GetParam()}};
  Granted held_;
};

TEST_P(LostToken, is_told_when_the_lease_of_its_permit_ends) {
  EXPECT_FALSE(held_.lost.stop_requested());
  cluster_.topic->away(true);
  EXPECT_TRUE(eventually([&] { return held_.lost.stop_requested(); }));
  EXPECT_TRUE(tokens_.outstanding().at(0).lost);
  EXPECT_EQ(tokens_.keep(held_.token), KeepAnswer::lost);
  EXPECT_EQ(tokens_.release(held_.token), ReleaseAnswer::too_late);
}

TEST_P(LostToken, may_be_released_where_that_is_told) {
  std::promise<ReleaseAnswer> released;
  const std::stop_callback release(held_.lost, [&] { released.set_value(tokens_.release(held_.token)); });
  cluster_.topic->away(true);
  EXPECT_EQ(released.get_future().get(), ReleaseAnswer::too_late);
}

TEST_P(LostToken, may_be_released_while_that_is_told) {
  std::promise<void> told, released;
  std::jthread releases([&] {
    told.get_future().wait();
    EXPECT_EQ(tokens_.release(held_.token), ReleaseAnswer::too_late);
    released.set_value();
  });
  const std::stop_callback on_lost(held_.lost, [&] {
    told.set_value();
    EXPECT_EQ(released.get_future().wait_for(20s), std::future_status::ready) << "release() waits for this callback";
  });
  cluster_.topic->away(true);
  releases.join();
}

INSTANTIATE_TEST_SUITE_P(Each, LostToken, ::testing::Values(0ms, 60'000ms), [](const auto& tested) {
  return tested.param == 0ms ? "without_a_hold_timeout" : "with_a_hold_timeout";
});

TEST(TokenDomain, a_member_that_was_cut_off_across_a_trim_begins_anew_from_the_newer_snapshot) {
  Cluster cluster;
  cluster.settings.lease = 400ms;
  cluster.settings.snapshot_every = 8;
  const auto a = cluster.join(), b = cluster.join();
  const auto cable = std::make_shared<testing::MemoryTokenCable>();
  const auto cut_off =
      join_token_domain(std::make_unique<MemoryTokenLog>(cluster.topic, cable), cluster.settings, cluster.quiet);
  const auto psp = cut_off->open("psp", 2);
  auto held = take_all(*psp, 2);
  cable->cut = true;
  const auto end = cluster.topic->end();
  EXPECT_TRUE(eventually([&] { return cluster.topic->begin() > end; })) << "the others go on, and trim";
  EXPECT_TRUE(eventually([&] { return held.front().lost().stop_requested(); }));
  held.clear();
  cable->cut = false;
  EXPECT_EQ(take_all(*psp, 2).size(), 2U);
  EXPECT_EQ(cut_off->halted(), "");
}

TEST(TokenDomain, names_that_nobody_uses_leave_and_one_too_many_is_refused_with_the_bound) {
  Cluster cluster;
  cluster.settings.most_limiters = 3;
  const auto a = cluster.join(), b = cluster.join();
  const auto first = a->open("first", 1);
  auto second = a->open("second", 1);
  const auto third = b->open("third", 1);
  EXPECT_TRUE(eventually([&] { return a->permits().limiters.size() == 3; }));
  try {
    a->open("fourth", 1);
    FAIL() << "it was opened";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has 3 limiters, which is the maximum (limits.most_limiters)"),
              std::string::npos)
        << error.what();
  }
  take_all(*second, 1).clear();
  second.reset();
  EXPECT_TRUE(eventually([&] { return a->permits().limiters.size() == 2; }));
  EXPECT_EQ(take_all(*a->open("second", 5), 5).size(), 5U) << "its name came free, for another limit, too";
}

/// The database counts epochs separately for each group. Two groups that read one topic are independent of each other.
TEST(TokenDomain, a_claim_of_one_group_takes_nothing_from_the_owner_of_another) {
  Cluster cluster;
  const auto billing = cluster.join(), mail = cluster.join(), heir = cluster.join();
  const auto psp = billing->open_for_partitions("psp", 2);
  billing->on_claimed("billing", "db", {"orders", 0}, Epoch{1});
  billing->wait_until_claimed();
  const auto held = take_all(*psp, 2);
  mail->on_claimed("mail", "db", {"orders", 0}, Epoch{5});
  mail->wait_until_claimed();
  mail->on_claimed("billing", "another db", {"orders", 0}, Epoch{5});
  mail->wait_until_claimed();
  EXPECT_EQ(held_by_all(*mail, "psp"), 2);
  EXPECT_TRUE(held.front().holds());
  heir->on_claimed("billing", "db", {"orders", 0}, Epoch{2});
  heir->wait_until_claimed();
  EXPECT_TRUE(eventually([&] { return held_by_all(*heir, "psp") == 0; })) << "fenced";
}

TEST(TokenDomain, sets_the_reserve_aside_while_all_is_well) {
  Cluster cluster;
  cluster.settings.reserve = 1;
  cluster.settings.reserve_for = 2;
  const auto a = cluster.join(), b = cluster.join();
  const auto of_a = a->open("psp", 5), of_b = b->open("psp", 5);
  const auto held_by_a = take_all(*of_a, 3);
  EXPECT_EQ(held_by_a.size(), 3U);
  EXPECT_EQ(of_a->state().limit, 3);
  EXPECT_EQ(held_by_all(*a, "psp"), 3);
  EXPECT_FALSE(of_b->try_acquire());
}

TEST(TokenDomain, runs_on_the_reserve_while_the_log_is_away) {
  Cluster cluster;
  cluster.settings.lease = 600ms;
  cluster.settings.reserve = 2;
  cluster.settings.reserve_for = 2;
  const auto a = cluster.join(), b = cluster.join(), beyond = cluster.join();
  const auto of_a = a->open("psp", 7), of_b = b->open("psp", 7);
  EXPECT_TRUE(eventually([&] { return reserved_by_all(*b, "psp") == 4; }));
  const auto of_third = beyond->open("psp", 7);
  for (const auto& limiter : {of_b, of_third}) take_all(*limiter, 1);
  auto held = take_all(*of_a, 1);
  cluster.topic->away(true);
  EXPECT_TRUE(eventually([&] { return held.front().lost().stop_requested(); }));
  held.clear();
  for (const auto& limiter : {of_a, of_b}) {
    EXPECT_TRUE(eventually([&] { return most_to_be_had(*limiter) == 2; }));
    Permit one = limiter->try_acquire();
    const Permit two = limiter->try_acquire();
    ASSERT_TRUE(two);
    const auto woken = std::make_shared<std::atomic<bool>>(false);
    limiter->when_free([woken] { *woken = true; });
    EXPECT_FALSE(limiter->try_acquire());
    EXPECT_FALSE(*woken);
    one.give_back();
    EXPECT_TRUE(*woken);
  }
  EXPECT_TRUE(eventually([&] { return most_to_be_had(*of_third) == 0; })) << "the reserve is for two";
  cluster.topic->away(false);
  EXPECT_EQ(take_all(*of_third, 3).size(), 3U);
}

TEST(TokenDomain, knows_a_claim_once_it_was_read_back_and_closes_when_it_is_not) {
  Cluster cluster;
  const auto a = cluster.join(), b = cluster.join();
  a->on_claimed("billing", "db", {"orders", 0}, Epoch{7});
  a->wait_until_claimed();
  const auto of_b = b->open("psp", 1);
  // The log refuses b's claim, since a's fence is newer. b knows the claim all the same.
  b->on_claimed("billing", "db", {"orders", 0}, Epoch{6});
  b->wait_until_claimed();
  EXPECT_EQ(take_all(*of_b, 1).size(), 1U);
}

TEST(TokenDomain, what_nobody_knows_cannot_be_unset_and_nothing_waits_for_it) {
  Cluster cluster;
  const auto a = cluster.join();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(a->set_limit("nobody", std::nullopt, 60s));
  EXPECT_LT(std::chrono::steady_clock::now() - before, 30s);
  EXPECT_LT(cluster.topic->end(), 20);
}

TEST(TokenDomain, grants_permits_to_a_program_that_only_tries) {
  Cluster cluster;
  const auto domain = cluster.join();
  TokenService tokens{domain};
  tokens.limit("psp", 10);
  const auto one = [&] { return tokens.request("psp", 1, Priority::normal, 0ms); };
  std::vector<TokenId> held;
  EXPECT_TRUE(eventually([&] {
    for (auto answer = one(); std::holds_alternative<Granted>(answer); answer = one())
      held.push_back(std::get<Granted>(answer).token);
    return held.size() == 10;
  })) << held.size();
  for (const auto& token : held) tokens.release(token);
  EXPECT_TRUE(tokens.acquire("psp", 0ms));
}

TEST(TokenDomain, says_at_once_that_it_does_not_take_a_limit) {
  Cluster cluster;
  const auto domain = cluster.join();
  const auto before = std::chrono::steady_clock::now();
  EXPECT_THROW(domain->set_limit(std::string(256, 'x'), 3, 60s), Error);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 30s);
  EXPECT_LT(cluster.topic->end(), 20) << "it was written once, not in every round";
}

TEST(TokenDomain, waits_without_end_where_the_timeout_is_the_longest_there_is) {
  Cluster cluster;
  const auto domain =
      join_token_domain(std::make_unique<MemoryTokenLog>(cluster.topic), cluster.settings, cluster.quiet);
  EXPECT_TRUE(domain->wait_until_joined(std::chrono::milliseconds::max()));
  EXPECT_TRUE(domain->set_limit("psp", 3, std::chrono::milliseconds::max()));
}

TEST(TokenDomain, notices_that_the_machine_was_suspended) {
  Cluster cluster;
  const auto a = cluster.join();
  const auto psp = a->open("psp", 2);
  auto held = take_all(*psp, 2);
  ASSERT_TRUE(held.front().holds());
  LeaseClock::suspend(cluster.settings.lease);
  EXPECT_FALSE(held.front().holds());
  EXPECT_TRUE(eventually([&] { return held.front().lost().stop_requested(); })) << "and is told";
  held.clear();
  EXPECT_EQ(take_all(*psp, 2).size(), 2U);
}

/// A fence of the database refuses the effects of handlers on lost partitions, and nothing else.
TEST(TokenDomain, a_fence_takes_back_what_handlers_hold_and_not_what_a_service_holds) {
  Cluster cluster;
  cluster.settings.lease = 60'000ms;
  for (const bool has_service : {false, true}) {
    const std::string name = has_service ? "both" : "handlers";
    const TopicPartition at{"orders", has_service ? 1 : 0};
    const auto a = cluster.join(), b = cluster.join();
    const auto handlers = a->open_for_partitions(name, 2);
    const auto service = has_service ? a->open(name, 2) : nullptr;
    a->on_claimed("billing", "db", at, Epoch{1});
    a->wait_until_claimed();
    const auto held = take_all(has_service ? *service : *handlers, 1);
    b->on_claimed("billing", "db", at, Epoch{2});
    b->wait_until_claimed();
    if (has_service) {
      EXPECT_EQ(take_all(*handlers, 2 - held.size()).size(), 2 - held.size()) << "and the rest is there for both";
      EXPECT_TRUE(held.front().holds());
    } else {
      EXPECT_TRUE(eventually([&] { return !held.front().holds(); }));
    }
  }
}

TEST(TokenDomain, what_was_taken_back_is_lost_before_the_next_claim_is_known) {
  Cluster cluster;
  cluster.settings.lease = 60'000ms;
  const auto a = cluster.join(), b = cluster.join();
  const auto psp = a->open_for_partitions("psp", 2);
  const TopicPartition at{"orders", 0};
  for (std::int64_t epoch = 1; epoch < 100; epoch += 3) {
    a->on_claimed("billing", "db", at, Epoch{epoch});
    a->wait_until_claimed();
    const auto held = take_all(*psp, 1);
    b->on_claimed("billing", "db", at, Epoch{epoch + 1});
    b->wait_until_claimed();
    a->on_claimed("billing", "db", at, Epoch{epoch + 2});
    a->wait_until_claimed();
    // Whatever b claimed before that has reached a too.
    ASSERT_FALSE(held.front().holds()) << "epoch " << epoch;
  }
}

/// A log that can be read, and that refuses writes.
class ReadOnlyLog final : public ports::TokenLog {
 public:
  explicit ReadOnlyLog(std::shared_ptr<std::atomic<int>> failures) : failures_(std::move(failures)) {}
  std::optional<Snapshot> snapshot(std::int64_t) override { return std::nullopt; }
  std::int64_t begin() override { return 0; }
  std::int64_t end() override { return 0; }
  void seek(std::int64_t) override {}
  std::vector<Record> read(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, timeout, [this] { return std::exchange(wake_, false); });
    return {};
  }
  void append(std::string) override { failed_ = true; }
  bool failed() override {
    const bool did = std::exchange(failed_, false);
    *failures_ += did;
    return did;
  }
  [[nodiscard]] std::string why_failed() const override { return "no right to write"; }
  void save(std::int64_t, std::string) override {}
  [[nodiscard]] std::int64_t saved() const override { return -1; }
  void trim(std::int64_t) override {}
  void wake() noexcept override {
    const std::lock_guard lock(mutex_);
    wake_ = true;
    woken_.notify_one();
  }
  void flush(std::chrono::milliseconds) override {}
  [[nodiscard]] std::string name() const override { return "a log that refuses"; }

 private:
  const std::shared_ptr<std::atomic<int>> failures_;
  std::mutex mutex_;
  std::condition_variable woken_;
  bool wake_ = false, failed_ = false;
};

TEST(TokenDomain, who_may_not_write_says_why_once_and_tries_later_and_later) {
  test::CapturedLog text;
  const auto logger = std::make_shared<spdlog::logger>("t", text.sink());
  const auto failures = std::make_shared<std::atomic<int>>(0);
  {
    const auto domain = join_token_domain(std::make_unique<ReadOnlyLog>(failures), {}, logger);
    EXPECT_FALSE(domain->wait_until_joined(1'500ms));
  }
  // It tries at once, then after 0.1 s, 0.2 s, 0.4 s and 0.8 s: five or six tries in 1.5 s. Without a pause there would
  // be thousands.
  EXPECT_GE(*failures, 2);
  EXPECT_LE(*failures, 8);
  const std::string said = text.str();
  const auto first = said.find("no right to write");
  ASSERT_NE(first, std::string::npos) << said;
  EXPECT_EQ(said.find("no right to write", first + 1), std::string::npos) << said;
}

TEST(TokenDomain, a_limit_that_the_reserve_uses_up_is_refused) {
  Cluster cluster;
  cluster.settings.reserve = 2;
  cluster.settings.reserve_for = 4;
  EXPECT_THROW(cluster.join()->open("psp", 8), Error);
  EXPECT_NO_THROW(cluster.join()->open("psp", 9));
}

}  // namespace
}  // namespace turnstile
