// The contract of every inbox for a transaction with messages of several partitions.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "tests/contract/inbox_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

constexpr const char* kEffect = InboxFixture::kEffect;
constexpr const char* kRefused = InboxFixture::kRefused;

class SharedContract : public InboxContract {};
INSTANTIATE_TEST_SUITE_P(Inbox, SharedContract, all_inbox_kinds(), kind_name);

TEST_P(SharedContract, takes_in_the_ids_of_each_partition) {
  const Fence other = claim(1), third = claim(2);
  once({"b"});
  const auto session = store().open_session();
  // In any order of the partitions, and with ids that several of them have.
  EXPECT_EQ(admit_shared(*session, {{third, {"d", "a"}}, {fence_, {"b", "a"}}, {other, {"c"}}}), "ffddf");
  session->at_message(0);
  session->transaction().defer(kEffect, "d");
  session->at_message(4);
  session->transaction().defer(kEffect, "c");
  session->commit();
  EXPECT_THAT(world_->effects(), ElementsAre("b", "d", "c"));
  EXPECT_EQ(once({"a", "b", "c", "d"}), "dddd");
}

TEST_P(SharedContract, a_batch_of_one_message_and_an_empty_one_are_transactions_too) {
  const Fence other = claim(1);
  const auto session = store().open_session();
  EXPECT_EQ(admit_shared(*session, {{fence_, {"a"}}, {other, {}}}), "f");
  session->commit();
  EXPECT_EQ(once({"a"}), "d");
}

TEST_P(SharedContract, one_lost_partition_refuses_the_whole_transaction) {
  const Fence other = claim(1);
  for (const std::int32_t lost : {0, 1}) {
    const Fence first = lost == 0 ? fence_ : claim(0), second = lost == 0 ? other : other;
    claim(lost);
    const auto session = store().open_session();
    EXPECT_THROW(admit_shared(*session, {{first, {"a"}}, {second, {"b"}}}), Fenced) << lost;
    session->rollback();
  }
  fence_ = claim();
  EXPECT_EQ(once({"a", "b"}), "ff");  // none of it was taken in
}

TEST_P(SharedContract, fences_of_different_histories_are_not_valid_together) {
  Fence old = claim(1);
  --old.history;
  const auto session = store().open_session();
  EXPECT_THROW(admit_shared(*session, {{fence_, {"a"}}, {old, {"b"}}}), Fenced);
  EXPECT_THROW(admit_shared(*session, {{old, {"b"}}, {fence_, {"a"}}}), Fenced);
  EXPECT_EQ(once({"a", "b"}), "ff");
}

/// As for a transaction of one partition: while it is open, no other process becomes the owner.
TEST_P(SharedContract, a_claim_of_any_of_its_partitions_waits_for_its_end) {
  const Fence other = claim(1);
  for (const std::int32_t partition : {0, 1}) {
    const Fence first = partition == 0 ? fence_ : claim(0);
    const auto session = store().open_session();
    EXPECT_EQ(admit_shared(*session,
                           {{first, {"a" + std::to_string(partition)}}, {other, {"b" + std::to_string(partition)}}}),
              "ff");
    auto claiming = std::async(std::launch::async, [&] { return claim(partition); });
    EXPECT_EQ(claiming.wait_for(200ms), std::future_status::timeout) << partition;
    session->commit();
    EXPECT_EQ(claiming.get().epoch.value, (partition == 0 ? first : other).epoch.value + 1);
  }
}

TEST_P(SharedContract, an_error_names_its_message_among_all) {
  const Fence other = claim(1);
  const auto session = store().open_session();
  admit_shared(*session, {{fence_, {"a", "b"}}, {other, {"c", "d"}}});
  for (const std::size_t index : {0U, 1U, 2U, 3U}) {
    session->at_message(index);
    session->transaction().defer(index == 3 ? kRefused : kEffect, "x");
  }
  try {
    session->commit();
    ADD_FAILURE() << "it was committed";
  } catch (const DeferredSqlError& error) {
    EXPECT_EQ(error.message_index, 3U);
  }
  EXPECT_THAT(world_->effects(), IsEmpty());
}

TEST_P(SharedContract, fingerprints_are_compared_over_partitions) {
  const Fence other = claim(1);
  const std::vector<ports::InboxEntry> first{{MessageId::from("a"), 0, 1}}, second{{MessageId::from("a"), 0, 2}};
  ports::InboxScope common = scope(fence_);
  common.fence.reset();
  const std::vector<ports::InboxShare> shares{{fence_, first}, {other, second}};
  const auto session = store().open_session();
  EXPECT_THAT(session->begin_shared(common, shares), ElementsAre(ports::Admission::fresh, ports::Admission::mismatch));
}

}  // namespace
}  // namespace turnstile::test
