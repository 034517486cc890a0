// The contract of every inbox for a transaction that was announced before the commit ahead of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/contract/inbox_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

constexpr const char* kEffect = InboxFixture::kEffect;

class AnnouncedContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (IsSkipped()) return;
    session_ = store().open_session();
    run("warm up");  // a session may send ahead from its second transaction on
  }
  void run(const std::string& id) {
    EXPECT_EQ(admit(*session_, {id}), "f");
    session_->transaction().exec(kEffect, id);
    session_->commit();
  }
  void announce(const ports::InboxScope& scope, const std::string& id) { session_->announce(scope, entries({id})); }
  /// A transaction of `id` that announces `next`, up to its commit.
  void run_before(const std::string& id, const std::string& next) {
    EXPECT_EQ(admit(*session_, {id}), "f");
    session_->transaction().exec(kEffect, id);
    announce(scope(fence_), next);
    session_->commit();
  }

  std::unique_ptr<ports::InboxSession> session_;
};
INSTANTIATE_TEST_SUITE_P(Inbox, AnnouncedContract, all_inbox_kinds(), kind_name);

TEST_P(AnnouncedContract, it_is_as_any_other) {
  run_before("a", "b");
  run_before("b", "c");
  run("c");
  EXPECT_THAT(world_->effects(), ElementsAre("warm up", "a", "b", "c"));
  EXPECT_EQ(once({"a", "b", "c"}), "ddd");
}

TEST_P(AnnouncedContract, nothing_of_it_is_left_if_another_follows) {
  run_before("a", "b");
  run("c");
  run_before("d", "e");
  EXPECT_EQ(admit(*session_, {"f", "e"}), "ff");
  session_->rollback();
  EXPECT_EQ(once({"b", "c", "d", "e"}), "fddf");
}

TEST_P(AnnouncedContract, nothing_of_it_is_left_after_a_rollback) {
  run_before("a", "b");
  session_->rollback();
  EXPECT_EQ(once({"a", "b"}), "df");
}

TEST_P(AnnouncedContract, may_follow_a_rollback) {
  ASSERT_EQ(once({"a", "d"}), "ff");
  EXPECT_EQ(admit(*session_, {"a"}), "d");
  announce(scope(fence_), "b");
  session_->rollback();
  run_before("b", "c");
  EXPECT_EQ(admit(*session_, {"c"}), "f");
  session_->transaction().exec(kEffect, "of what is rolled back");
  announce(scope(fence_), "d");
  session_->rollback();
  EXPECT_EQ(admit(*session_, {"d"}), "d");
  announce(scope(fence_), "e");
  session_->rollback();
  session_->rollback();
  EXPECT_EQ(once({"a", "b", "c", "d", "e"}), "ddfdf");
}

TEST_P(AnnouncedContract, nothing_of_it_is_left_if_another_follows_a_rollback) {
  EXPECT_EQ(admit(*session_, {"a"}), "f");
  announce(scope(fence_), "b");
  session_->rollback();
  run("c");
  EXPECT_EQ(admit(*session_, {"d"}), "f");
  announce(scope(fence_), "e");
  session_->rollback();
  session_.reset();
  EXPECT_EQ(once({"a", "b", "c", "d", "e"}), "ffdff");
}

TEST_P(AnnouncedContract, nothing_of_it_is_left_after_its_session) {
  run_before("a", "b");
  session_.reset();
  EXPECT_EQ(once({"a", "b"}), "df");
}

TEST_P(AnnouncedContract, its_own_failure_rolls_only_itself_back) {
  run_before("a", "b");
  EXPECT_EQ(admit(*session_, {"b"}), "f");
  session_->transaction().exec(kEffect, "b");
  announce(scope(fence_), "c");
  session_->rollback();
  run("c");
  EXPECT_EQ(once({"a", "b", "c"}), "dfd");
  EXPECT_THAT(world_->effects(), ElementsAre("warm up", "a", "c", "b"));
}

TEST_P(AnnouncedContract, a_duplicate_is_one) {
  ASSERT_EQ(once({"b"}), "f");
  run_before("a", "b");
  EXPECT_EQ(admit(*session_, {"b"}), "d");
  session_->rollback();
  run_before("c", "c");
  EXPECT_EQ(admit(*session_, {"c"}), "d") << "the id of the transaction before it";
  session_->commit();
}

TEST_P(AnnouncedContract, another_payload_of_the_same_id_is_found) {
  const ports::InboxEntry stored{MessageId::from("b"), 0, 1}, other{MessageId::from("b"), 1, 2};
  EXPECT_EQ(admit(*session_, scope(fence_), {stored}), "f");
  session_->commit();
  EXPECT_EQ(admit(*session_, {"a"}), "f");
  session_->announce(scope(fence_), {&other, 1});
  session_->commit();
  EXPECT_EQ(admit(*session_, scope(fence_), {other}), "m");
  session_->rollback();
}

TEST_P(AnnouncedContract, a_partition_that_was_lost_meanwhile_refuses_it) {
  const Fence old = fence_;
  EXPECT_EQ(admit(*session_, {"a"}), "f");
  announce(scope(old), "b");
  session_->commit();
  session_->rollback();  // or the claim would wait for it
  EXPECT_EQ(admit(*session_, {"c"}), "f");
  Fence lost = old;
  lost.epoch.value -= 1;
  announce(scope(lost), "b");
  session_->commit();
  EXPECT_THROW(admit(*session_, scope(lost), entries({"b"})), Fenced);
  run("d");
  EXPECT_EQ(once({"a", "b", "c", "d"}), "dfdd");
}

TEST_P(AnnouncedContract, the_one_before_it_is_refused_alone) {
  EXPECT_EQ(admit(*session_, {"a"}), "f");
  session_->at_message(0);
  session_->transaction().defer(InboxFixture::kRefused, "a");
  announce(scope(fence_), "b");
  EXPECT_THROW(session_->commit(), DeferredSqlError);
  run("b");
  EXPECT_EQ(once({"a", "b"}), "fd");
}

TEST_P(AnnouncedContract, it_survives_the_lost_answer_of_the_one_before_it) {
  for (const bool carried_out : {false, true}) {
    const std::string n = carried_out ? "1" : "0";
    EXPECT_EQ(admit(*session_, {"a" + n}), "f");
    announce(scope(fence_), "b" + n);
    world_->lose_next_commit(carried_out);
    EXPECT_THROW(session_->commit(), CommitInDoubt);
    EXPECT_EQ(admit(*session_, {"b" + n}), "f");
    session_->commit();
    EXPECT_EQ(once({"a" + n, "b" + n}), carried_out ? "dd" : "fd");
  }
}

TEST_P(AnnouncedContract, messages_that_are_not_alone_are_no_less_safe) {
  EXPECT_EQ(admit(*session_, {"a"}), "f");
  session_->announce(scope(fence_), entries({"b", "c"}));
  session_->commit();
  EXPECT_EQ(admit(*session_, {"b", "c"}), "ff");
  session_->announce(scope(fence_), {});
  session_->commit();
  EXPECT_EQ(once({"a", "b", "c"}), "ddd");
}

}  // namespace
}  // namespace turnstile::test
