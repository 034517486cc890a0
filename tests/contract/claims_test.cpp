// The contract of claims for every store (ports/claims.hpp).

#include <gmock/gmock.h>

#include <future>

#include "inbox_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class ClaimsContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (world_) claims_ = store().claims();
  }
  [[nodiscard]] ports::ClaimScope by(const std::string& owner, std::chrono::milliseconds lease = 60s) const {
    return {.handler = handler_, .fence = fence_, .owner = MessageId::from(owner), .lease = lease};
  }
  /// A letter for each: c(laimed), d(one), m(ismatch), r(unning), p(arked), e(qual to an earlier entry).
  std::string claim_entries(const ports::ClaimScope& scope, const std::vector<ports::InboxEntry>& entries) {
    last_ = claims_->claim(scope, entries);
    std::string letters;
    for (const ports::Claim& claim : last_) letters += "cdmrpe"[static_cast<int>(claim.state)];
    return letters;
  }
  std::string claim(const ports::ClaimScope& scope, const std::vector<std::string>& ids) {
    return claim_entries(scope, entries(ids));
  }
  static ports::ClaimEnd ended(const std::string& id, std::int64_t fence,
                               ports::ClaimEnd::Kind kind = ports::ClaimEnd::Kind::done,
                               std::optional<std::string> response = {}) {
    return {.kind = kind, .claim = {MessageId::from(id), fence}, .response = std::move(response), .error = "broken"};
  }
  std::vector<bool> end(const std::string& owner, const std::vector<ports::ClaimEnd>& ends) {
    return claims_->end(handler_, MessageId::from(owner), ends);
  }
  bool done(const std::string& id) { return store().find(handler_, MessageId::from(id)).has_value(); }
  /// Such claims are in doubt at once.
  std::string claim_and_vanish(const std::string& owner, const std::vector<std::string>& ids) {
    const std::string letters = claim(by(owner, 1ms), ids);
    EXPECT_TRUE(eventually(
        [&, until = std::chrono::steady_clock::now() + 5ms] { return std::chrono::steady_clock::now() > until; }));
    return letters;
  }

  std::shared_ptr<ports::Claims> claims_;
  std::vector<ports::Claim> last_;
};

INSTANTIATE_TEST_SUITE_P(Claims, ClaimsContract, all_inbox_kinds(), kind_name);

/// Only messages whose handlers have begun are in doubt.
TEST_P(ClaimsContract, what_had_not_begun_when_its_lease_ended_is_not_in_doubt) {
  ports::ClaimScope dying = by("dying", 1ms);
  dying.begins = false;
  EXPECT_EQ(claim(dying, {"a", "b", "c"}), "ccc");
  const ports::HeldClaim begun{MessageId::from("b"), 1};
  const bool held = claims_->begin(handler_, MessageId::from("dying"), {&begun, 1}).front();
  EXPECT_TRUE(eventually(
      [&, until = std::chrono::steady_clock::now() + 5ms] { return std::chrono::steady_clock::now() > until; }));
  EXPECT_TRUE(held);
  EXPECT_EQ(claim(by("next"), {"a", "b", "c"}), "cpc");
  EXPECT_THAT(end("next", {ended("a", 2), ended("c", 2)}), ElementsAre(true, true));
  EXPECT_TRUE(done("a") && done("c") && !done("b"));
}

/// Their messages may never come again: they ran unclaimed, or have expired in Kafka.
TEST_P(ClaimsContract, what_had_not_begun_when_its_lease_ended_is_dropped_by_the_purger) {
  const auto unbegun = [&](const char* owner, std::chrono::milliseconds lease) {
    ports::ClaimScope scope = by(owner, lease);
    scope.begins = false;
    return scope;
  };
  EXPECT_EQ(claim(unbegun("one", 1ms), {"again"}), "c");
  claim_and_vanish("two", {"begun"});
  EXPECT_EQ(claim(unbegun("three", 1ms), {"again", "a", "b"}), "ccc");
  EXPECT_EQ(claim(unbegun("lives", 60s), {"c"}), "c");
  EXPECT_TRUE(eventually([&] {
    store().retention().purge_step(100);
    return claims_->count({}) == ports::ClaimCounts{.running = 1, .in_doubt = 1, .failed = 1};
  }));
  const ports::HeldClaim late{MessageId::from("a"), 1}, held{MessageId::from("c"), 1};
  EXPECT_THAT(claims_->begin(handler_, MessageId::from("three"), {&late, 1}), ElementsAre(false));
  EXPECT_THAT(claims_->begin(handler_, MessageId::from("lives"), {&held, 1}), ElementsAre(true));
  EXPECT_EQ(claim(by("next"), {"again", "a", "b", "begun", "c"}), "cccpr");
  EXPECT_EQ(last_[0].fence, 3) << "an outside system may have seen the fence of the second claim";
  EXPECT_EQ(last_[1].fence, 1);
}

TEST_P(ClaimsContract, who_has_lost_a_claim_does_not_begin) {
  ports::ClaimScope slow = by("slow", 1ms);
  slow.begins = false;
  EXPECT_EQ(claim(slow, {"a"}), "c");
  EXPECT_TRUE(eventually(
      [&, until = std::chrono::steady_clock::now() + 5ms] { return std::chrono::steady_clock::now() > until; }));
  EXPECT_EQ(claim(by("next", 1ms), {"a"}), "c");
  const ports::HeldClaim late{MessageId::from("a"), 1};
  EXPECT_THAT(claims_->begin(handler_, MessageId::from("slow"), {&late, 1}), ElementsAre(false));
  EXPECT_TRUE(eventually(
      [&, until = std::chrono::steady_clock::now() + 5ms] { return std::chrono::steady_clock::now() > until; }));
  EXPECT_EQ(claim(by("third"), {"a"}), "p") << "the second one's handler had begun with the claim";
}

TEST_P(ClaimsContract, what_is_claimed_is_ones_own_until_it_ends) {
  EXPECT_EQ(claim(by("one"), {"b", "a"}), "cc");
  EXPECT_EQ(last_[0].fence, 1);
  EXPECT_EQ(claim(by("two"), {"a", "c", "b"}), "rcr");
  EXPECT_GT(last_[0].left, 50s);
  EXPECT_LE(last_[0].left, 60s);
  EXPECT_FALSE(done("a")) << "claimed is not done";
  EXPECT_THAT(end("one", {ended("a", 1), ended("b", 1)}), ElementsAre(true, true));
  EXPECT_EQ(claim(by("two"), {"a", "b"}), "dd");
  EXPECT_TRUE(done("a"));
}

TEST_P(ClaimsContract, what_runs_is_the_record_itself_or_a_copy) {
  const ports::InboxEntry here{.id = MessageId::from("a"), .offset = 7},
      behind{.id = MessageId::from("a"), .offset = 8};
  EXPECT_EQ(claim_entries(by("one"), {here}), "c");
  EXPECT_EQ(claim_entries(by("two"), {here}), "r");
  EXPECT_FALSE(last_[0].is_copy) << "delivered again while it runs";
  EXPECT_EQ(claim_entries(by("two"), {behind}), "r");
  EXPECT_TRUE(last_[0].is_copy);
  fence_ = InboxContract::claim(1);
  EXPECT_EQ(claim_entries(by("two"), {here}), "r");
  EXPECT_TRUE(last_[0].is_copy) << "the same offset of another partition";
}

TEST_P(ClaimsContract, new_messages_are_claimed_beside_others) {
  claim(by("one"), {"done", "failed", "running"});
  end("one", {ended("done", 1), ended("failed", 1, ports::ClaimEnd::Kind::failed)});
  EXPECT_EQ(claim(by("two"), {"a", "done", "b"}), "cdc");
  EXPECT_EQ(claim(by("two"), {"c", "running", "failed", "done", "d"}), "crcdc");
  EXPECT_EQ(last_[0].fence, 1);
  EXPECT_EQ(last_[2].fence, 2);
  EXPECT_EQ(claim(by("two"), {"e", "f"}), "cc");
  EXPECT_THAT(
      end("two", {ended("a", 1), ended("b", 1), ended("c", 1), ended("failed", 2), ended("d", 1), ended("f", 1)}),
      Each(true));
}

/// Another process may run the handler in another mode.
TEST_P(ClaimsContract, are_ended_although_another_has_stored_an_id) {
  claim(by("one"), {"a", "b", "c"});
  EXPECT_EQ(once({"b"}), "f");
  EXPECT_THAT(end("one", {ended("a", 1), ended("b", 1), ended("c", 1)}), Each(true));
  EXPECT_EQ(claim(by("two"), {"a", "b", "c"}), "ddd");
}

TEST_P(ClaimsContract, equal_ids_of_one_call_are_claimed_once) {
  EXPECT_EQ(claim(by("one"), {"x", "a", "x", "x"}), "ccee");
}

TEST_P(ClaimsContract, what_is_done_is_an_id_of_the_inbox) {
  once({"m"});
  EXPECT_EQ(claim(by("one"), {"m", "n"}), "dc");
  end("one", {ended("n", 1)});
  EXPECT_EQ(once({"n"}), "d");
}

TEST_P(ClaimsContract, are_counted_by_state) {
  EXPECT_EQ(claims_->count({}), ports::ClaimCounts{});
  claim(by("one"), {"runs", "done", "back"});
  claim(by("two"), {"fails"});
  claim_and_vanish("three", {"doubt", "parked"});
  end("one", {ended("done", 1), ended("back", 1, ports::ClaimEnd::Kind::given_back)});
  end("two", {ended("fails", 1, ports::ClaimEnd::Kind::failed)});
  EXPECT_EQ(claim(by("four"), {"parked"}), "p");
  const ports::ClaimCounts all{.running = 1, .in_doubt = 1, .failed = 1, .parked = 1};
  EXPECT_EQ(claims_->count({}), all);
  EXPECT_EQ(claims_->count(handler_), all);
  EXPECT_EQ(claims_->count(store().register_handler("another")), ports::ClaimCounts{});
  ports::ClaimScope not_begun = by("five", 1ms);
  not_begun.begins = false;
  EXPECT_EQ(claim(not_begun, {"waits"}), "c");
  EXPECT_EQ(claims_->count({}).in_doubt, 1) << "the next owner runs it";
}

TEST_P(ClaimsContract, responses_are_kept_bit_for_bit) {
  using namespace std::string_literals;
  claim(by("one"), {"a", "b", "c"});
  end("one", {ended("a", 1, ports::ClaimEnd::Kind::done, "\0\xff"s), ended("b", 1, ports::ClaimEnd::Kind::done, ""),
              ended("c", 1)});
  EXPECT_EQ(store().find(handler_, MessageId::from("a"))->response, "\0\xff"s);
  EXPECT_EQ(store().find(handler_, MessageId::from("b"))->response, "");
  EXPECT_EQ(store().find(handler_, MessageId::from("c"))->response, std::nullopt);
}

TEST_P(ClaimsContract, an_end_compares_owner_fence_and_state) {
  claim(by("one"), {"a", "b", "c"});
  for (const auto kind :
       {ports::ClaimEnd::Kind::done, ports::ClaimEnd::Kind::failed, ports::ClaimEnd::Kind::given_back}) {
    EXPECT_THAT(end("two", {ended("a", 1, kind)}), ElementsAre(false)) << "another owner";
    EXPECT_THAT(end("one", {ended("a", 2, kind), ended("none", 1, kind)}), ElementsAre(false, false));
  }
  EXPECT_FALSE(done("a"));
  end("one", {ended("a", 1, ports::ClaimEnd::Kind::failed)});
  EXPECT_THAT(end("one", {ended("a", 1)}), ElementsAre(false)) << "it has failed already";
  EXPECT_THAT(end("one", {ended("b", 1), ended("a", 1), ended("c", 1)}), ElementsAre(true, false, true));
  EXPECT_THAT(end("one", {ended("b", 1)}), ElementsAre(false)) << "it is done already";
}

TEST_P(ClaimsContract, ends_of_all_kinds_go_together) {
  claim(by("one"), {"done", "failed", "back", "lost"});
  const auto held = end("one", {ended("lost", 7), ended("failed", 1, ports::ClaimEnd::Kind::failed), ended("done", 1),
                                ended("back", 1, ports::ClaimEnd::Kind::given_back)});
  EXPECT_THAT(held, ElementsAre(false, true, true, true));
  EXPECT_EQ(claim(by("two"), {"done", "failed", "back", "lost"}), "dccr");
  EXPECT_EQ(last_[1].fence, 2);
  EXPECT_EQ(last_[2].fence, 1) << "nobody has seen the first one's";
}

TEST_P(ClaimsContract, a_fence_only_grows) {
  std::int64_t before = 0;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(claim(by("one"), {"a"}), "c");
    EXPECT_GT(last_[0].fence, before);
    before = last_[0].fence;
    end("one", {ended("a", before, ports::ClaimEnd::Kind::failed)});
    EXPECT_EQ(claim(by("one"), {"a"}), "c");
    end("one", {ended("a", last_[0].fence, ports::ClaimEnd::Kind::given_back)});
  }
}

TEST_P(ClaimsContract, what_is_unknown_is_parked_and_never_claimed_again) {
  EXPECT_EQ(claim_and_vanish("one", {"a", "b"}), "cc");
  EXPECT_EQ(claim(by("two"), {"a"}), "p");
  EXPECT_EQ(claim(by("three"), {"a", "c"}), "pc");
  ports::ClaimScope rerun = by("four");
  rerun.rerun_unknown = true;
  EXPECT_EQ(claim(rerun, {"a"}), "p") << "that is for a person to say";
  EXPECT_THAT(end("one", {ended("a", 1)}), ElementsAre(false)) << "who comes late changes nothing";
  EXPECT_THAT(end("one", {ended("b", 1)}), ElementsAre(true))
      << "nobody has asked for it yet: its end is known after all";
  EXPECT_TRUE(done("b"));
}

TEST_P(ClaimsContract, what_is_unknown_is_claimed_again_where_that_is_the_policy) {
  claim_and_vanish("one", {"a"});
  ports::ClaimScope rerun = by("two");
  rerun.rerun_unknown = true;
  EXPECT_EQ(claim(rerun, {"a"}), "c");
  EXPECT_EQ(last_[0].fence, 2);
  EXPECT_THAT(end("one", {ended("a", 1)}), ElementsAre(false));
  EXPECT_FALSE(done("a"));
  EXPECT_THAT(end("two", {ended("a", 2)}), ElementsAre(true));
}

TEST_P(ClaimsContract, what_is_in_doubt_is_parked_unless_the_store_knows_it) {
  EXPECT_EQ(claim(by("before"), {"done", "failed", "running"}), "ccc");
  EXPECT_THAT(end("before", {ended("done", 1), ended("failed", 1, ports::ClaimEnd::Kind::failed)}),
              ElementsAre(true, true));
  std::vector<ports::InboxEntry> doubted = entries({"done", "failed", "running", "unknown"});
  for (ports::InboxEntry& entry : doubted) entry.in_doubt = true;
  EXPECT_EQ(claim_entries(by("one"), doubted), "dprp") << "the database may have lost a later run of what failed";
  EXPECT_EQ(claim(by("two"), {"unknown"}), "p") << "and stays so, also when nobody doubts any more";

  std::vector<ports::InboxEntry> another = entries({"another"});
  another.front().in_doubt = true;
  ports::ClaimScope rerun = by("three");
  rerun.rerun_unknown = true;
  EXPECT_EQ(claim_entries(rerun, another), "c");
}

TEST_P(ClaimsContract, a_lease_that_is_renewed_goes_on) {
  claim_and_vanish("one", {"a", "b"});
  const ports::HeldClaim held[] = {{MessageId::from("a"), 1}, {MessageId::from("b"), 9}, {MessageId::from("c"), 1}};
  EXPECT_THAT(claims_->renew(handler_, MessageId::from("one"), 60s, held), ElementsAre(true, false, false));
  EXPECT_THAT(claims_->renew(handler_, MessageId::from("two"), 60s, held), ElementsAre(false, false, false));
  EXPECT_EQ(claim(by("two"), {"a", "b"}), "rp");
  EXPECT_THAT(claims_->renew(handler_, MessageId::from("two"), 60s, {}), IsEmpty());
}

TEST_P(ClaimsContract, what_a_call_may_have_claimed_whose_answer_was_lost_is_taken_over) {
  EXPECT_EQ(claim(by("lost"), {"a"}), "c");
  ports::ClaimScope again = by("two");
  again.abandoned = {MessageId::from("other"), MessageId::from("lost")};
  EXPECT_EQ(claim(again, {"a", "b"}), "cc");
  EXPECT_EQ(claim(by("two"), {"a"}), "c") << "the same call, said again";
  end("two", {ended("a", last_[0].fence)});
  claim_and_vanish("lost", {"c"});
  EXPECT_EQ(claim(again, {"c"}), "c") << "however long it took";
}

TEST_P(ClaimsContract, parking_that_is_said_again_stays_parked) {
  claim_and_vanish("one", {"a"});
  EXPECT_EQ(claim(by("two"), {"a"}), "p");
  EXPECT_EQ(claim(by("two"), {"a"}), "p");
}

TEST_P(ClaimsContract, two_handlers_claim_the_same_id_once_each) {
  EXPECT_EQ(claim(by("one"), {"a"}), "c");
  ports::ClaimScope other = by("two");
  other.handler = store().register_handler("mail");
  EXPECT_EQ(claim(other, {"a"}), "c");
}

TEST_P(ClaimsContract, a_fenced_owner_claims_nothing) {
  const ports::ClaimScope old = by("one");
  claim(old, {"a"});
  fence_ = InboxContract::claim();
  EXPECT_THROW(claims_->claim(old, entries({"b"})), Fenced);
  EXPECT_EQ(claim(by("two"), {"a", "b"}), "rc") << "what it has claimed may still be at work";
  EXPECT_THAT(end("one", {ended("a", 1)}), ElementsAre(true)) << "and its effect was made";
  ports::ClaimScope free = by("three");
  free.fence.reset();
  EXPECT_EQ(claim(free, {"c"}), "c");
}

TEST_P(ClaimsContract, another_body_under_the_same_id_is_told_apart) {
  const auto entry = [](const char* id, std::int64_t fingerprint) {
    return std::vector{ports::InboxEntry{MessageId::from(id), 0, fingerprint}};
  };
  EXPECT_EQ(claim_entries(by("one"), entry("a", 1)), "c");
  EXPECT_EQ(claim_entries(by("two"), entry("a", 1)), "r");
  EXPECT_EQ(claim_entries(by("two"), entry("a", 2)), "m");
  end("one", {ended("a", 1)});
  EXPECT_EQ(claim_entries(by("two"), entry("a", 1)), "d");
  EXPECT_EQ(claim_entries(by("two"), entry("a", 2)), "m");
}

TEST_P(ClaimsContract, messages_are_published_with_the_end_and_only_by_who_still_has_the_claim) {
  claim(by("one"), {"a", "b"});
  const auto publishing = [&](const std::string& id, std::int64_t fence) {
    ports::ClaimEnd end = ended(id, fence);
    OwnedMessage message;
    message.topic = "orders";
    message.payload = id;
    end.messages.emplace_back(message, MessageId::from("of " + id));
    return end;
  };
  EXPECT_THAT(end("one", {publishing("a", 1), publishing("b", 2)}), ElementsAre(true, false));
  EXPECT_THAT(end("one", {publishing("a", 1)}), ElementsAre(false));
  const auto outbox = store().outbox();
  const auto waiting = outbox->waiting(outbox->keep_shards("relay", 30s), 10);
  ASSERT_THAT(waiting, SizeIs(1));
  EXPECT_EQ(waiting[0].message.payload, "a");
}

TEST_P(ClaimsContract, while_the_store_is_away_every_call_says_so) {
  claim(by("one"), {"a"});
  world_->go_away();
  const ports::HeldClaim held[] = {{MessageId::from("a"), 1}};
  EXPECT_THROW(claims_->claim(by("two"), entries({"b"})), StoreUnavailable);
  EXPECT_THROW(end("one", {ended("a", 1)}), StoreUnavailable);
  EXPECT_THROW(claims_->renew(handler_, MessageId::from("one"), 1s, held), StoreUnavailable);
  world_->come_back();
  EXPECT_THAT(end("one", {ended("a", 1)}), ElementsAre(true));
}

TEST_P(ClaimsContract, of_many_at_once_one_claims_each) {
  constexpr int kRivals = 6, kIds = 200;
  std::vector<std::string> ids;
  for (int i = 0; i < kIds; ++i) ids.push_back("id" + std::to_string(i));
  std::vector<std::future<int>> rivals;
  for (int rival = 0; rival < kRivals; ++rival) {
    rivals.push_back(std::async(std::launch::async, [&, rival] {
      auto mine = ids;
      if (rival % 2 == 1) std::reverse(mine.begin(), mine.end());
      const std::string owner = "rival " + std::to_string(rival);
      int claimed = 0;
      for (int round = 0; round < 3; ++round) {
        std::vector<ports::ClaimEnd> ends;
        const auto found = claims_->claim(by(owner), entries(mine));
        for (std::size_t i = 0; i < mine.size(); ++i) {
          if (found[i].state == ports::Claim::State::claimed) ends.push_back(ended(mine[i], found[i].fence));
        }
        for (const bool held : claims_->end(handler_, MessageId::from(owner), ends)) claimed += held;
      }
      return claimed;
    }));
  }
  int claimed = 0;
  for (auto& rival : rivals) claimed += rival.get();
  EXPECT_EQ(claimed, kIds) << "each is claimed, and done, once";
  EXPECT_EQ(claim(by("late"), ids), std::string(kIds, 'd'));
}

}  // namespace
}  // namespace turnstile::test
