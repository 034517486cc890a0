// What becomes of a record, by what the tables say of it.

#include <gtest/gtest.h>

#include "cli/src/audit/fate.hpp"

namespace turnstile::cli::audit {
namespace {

using namespace std::chrono_literals;
using postgres::AuditedClaim;
using postgres::AuditedDead;
using postgres::AuditedEffect;
using postgres::DatabaseTime;

class AuditFateTest : public ::testing::Test {
 protected:
  AuditFateTest() {
    place_.partition = postgres::AuditedPartition{.partition = 0, .slot = 3, .watermark = 100};
    facts_.offset = 42;
    facts_.time = Timestamp(1'000s);
    facts_.id = &id_;
    effect_.slot = 3;
    effect_.offset = 42;
    dead_.offset = 42;
    dead_.number = 7;
  }
  Fate fate() { return judge(facts_, place_).fate; }

  Facts facts_;
  Place place_;
  RecordIds::Found id_ = MessageId::from("m1");
  AuditedEffect effect_;
  AuditedClaim claim_{MessageId{}, "claimed"};
  AuditedDead dead_;
};

TEST_F(AuditFateTest, the_record_of_the_row_took_effect_and_others_with_its_id_are_duplicates) {
  facts_.effect = &effect_;
  EXPECT_EQ(fate(), Fate::took_effect);
  effect_.offset = 41;
  EXPECT_EQ(fate(), Fate::duplicate);
  effect_.offset = 42;
  effect_.slot = 4;
  EXPECT_EQ(fate(), Fate::duplicate) << "another partition";
}

TEST_F(AuditFateTest, a_dead_letter_is_parked_where_only_the_table_has_it) {
  facts_.dead = &dead_;
  EXPECT_EQ(fate(), Fate::dead_letter);
  dead_.parked = true;
  EXPECT_EQ(fate(), Fate::parked);
  dead_.replayed_at = postgres::DatabaseTime{};
  EXPECT_EQ(fate(), Fate::dead_letter) << "an operator has decided";
}

TEST_F(AuditFateTest, an_effect_and_a_dead_letter_are_one_fate_too_many_unless_it_was_replayed) {
  facts_.effect = &effect_;
  facts_.dead = &dead_;
  EXPECT_EQ(fate(), Fate::two_fates);
  EXPECT_NE(judge(facts_, place_).why.find("dead letter 7"), std::string::npos);
  dead_.replayed_at = DatabaseTime(5s);
  EXPECT_EQ(fate(), Fate::took_effect);
  dead_.replayed_at.reset();
  dead_.delivered_again = true;
  EXPECT_EQ(fate(), Fate::took_effect) << "after a rewind";
}

TEST_F(AuditFateTest, a_message_that_is_stored_for_a_retry_is_pending_until_it_is_settled) {
  postgres::AuditedRetry retry;
  facts_.retry = &retry;
  EXPECT_EQ(fate(), Fate::pending);
  retry.dead = 7;
  EXPECT_EQ(fate(), Fate::dead_letter);
  effect_.offset = 90;
  facts_.effect = &effect_;
  EXPECT_EQ(fate(), Fate::duplicate) << "the record that came back took effect";
}

TEST_F(AuditFateTest, what_is_claimed_or_not_settled_is_pending) {
  facts_.claim = &claim_;
  EXPECT_EQ(fate(), Fate::pending);
  claim_.state = "parked";
  EXPECT_EQ(fate(), Fate::parked);
  facts_.claim = nullptr;
  facts_.offset = 100;
  EXPECT_EQ(fate(), Fate::pending);
  facts_.offset = 42;
  place_.partition->watermark.reset();
  EXPECT_EQ(fate(), Fate::pending) << "no watermark was stored yet";
  place_.partition.reset();
  EXPECT_EQ(fate(), Fate::pending) << "nobody has claimed the partition";
}

TEST_F(AuditFateTest, what_was_settled_in_a_mode_without_ids_took_effect) {
  place_.partition->next_offset = 50;
  EXPECT_EQ(fate(), Fate::took_effect) << "the configuration does not have the mode";
  facts_.offset = 50;
  EXPECT_EQ(fate(), Fate::unaccounted) << "the mode was changed";
}

TEST_F(AuditFateTest, a_failed_claim_is_no_fate_once_the_partition_is_settled_past_it) {
  facts_.claim = &claim_;
  claim_.state = "failed";
  EXPECT_EQ(fate(), Fate::unaccounted) << "its dead letter is gone";
  postgres::AuditedRetry of_copy;
  of_copy.dead = 7;
  facts_.retry = &of_copy;
  EXPECT_EQ(fate(), Fate::dead_letter);
  facts_.retry = nullptr;
  facts_.offset = 100;
  EXPECT_EQ(fate(), Fate::pending) << "it runs again";
}

TEST_F(AuditFateTest, a_settled_record_without_a_trace_is_unaccounted) {
  EXPECT_EQ(fate(), Fate::unaccounted);
  id_ = RecordIds::Missing{"header 'message-id' is absent"};
  EXPECT_EQ(fate(), Fate::unaccounted);
  EXPECT_NE(judge(facts_, place_).why.find("header 'message-id' is absent"), std::string::npos);
  id_ = RecordIds::ForAnother{"mail"};
  EXPECT_EQ(fate(), Fate::for_another);
}

TEST_F(AuditFateTest, what_is_older_than_the_stored_ids_cannot_be_told) {
  place_.all_since = DatabaseTime(1'000s);
  EXPECT_EQ(fate(), Fate::unaccounted) << "an id of this time is still stored";
  place_.all_since = DatabaseTime(1'001s);
  EXPECT_EQ(fate(), Fate::cannot_tell);
  facts_.time = Timestamp{};
  EXPECT_EQ(fate(), Fate::cannot_tell) << "the record has no time";
  facts_.effect = &effect_;
  EXPECT_EQ(fate(), Fate::took_effect) << "its row is not purged yet";
}

TEST_F(AuditFateTest, modes_without_ids_have_only_how_far_the_partition_is_settled) {
  place_.partition->next_offset = 100;
  for (const Mode mode : {Mode::by_offset, Mode::numbered}) {
    place_.mode = mode;
    facts_.offset = 99;
    EXPECT_EQ(fate(), Fate::took_effect);
    facts_.offset = 100;
    EXPECT_EQ(fate(), Fate::pending);
    place_.partition->watermark = 101;
    EXPECT_EQ(fate(), Fate::cannot_tell) << "the group goes on behind it, and no effect is known";
    facts_.offset = 101;
    EXPECT_EQ(fate(), Fate::pending);
    place_.partition->watermark = 100;
  }
}

}  // namespace
}  // namespace turnstile::cli::audit
