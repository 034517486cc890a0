// The contract of every inbox for a batch's transaction (ports/inbox.hpp).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <thread>

#include "tests/contract/inbox_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using namespace std::chrono_literals;

constexpr const char* kRefused = InboxFixture::kRefused;

INSTANTIATE_TEST_SUITE_P(Inbox, InboxContract, all_inbox_kinds(), kind_name);

TEST_P(InboxContract, takes_an_id_in_once) {
  EXPECT_EQ(once({"a", "b"}), "ff");
  EXPECT_EQ(once({"b", "c", "a"}), "dfd");
  EXPECT_THAT(world_->effects(), ElementsAre("a", "b", "c"));
}

TEST_P(InboxContract, answers_in_the_order_asked) {
  once({"m", "c"});
  EXPECT_EQ(once({"z", "m", "y", "a", "c", "b"}), "fdffdf");
}

TEST_P(InboxContract, the_first_of_equal_ids_in_a_batch_is_fresh) {
  EXPECT_EQ(once({"x", "a", "x", "a", "x"}), "ffddd");
  EXPECT_THAT(world_->effects(), ElementsAre("x", "a"));
}

TEST_P(InboxContract, an_empty_batch_is_a_transaction_too) {
  EXPECT_EQ(once({}), "");
  const auto session = store().open_session();
  admit(*session, {});
  session->transaction().exec(kEffect, "alone");
  session->commit();
  EXPECT_THAT(world_->effects(), ElementsAre("alone"));
}

TEST_P(InboxContract, large_batches_keep_their_order) {
  std::vector<std::string> ids, even;
  for (int i = 0; i < 3'000; ++i) {
    ids.push_back("id" + std::to_string(i));
    if (i % 2 == 0) even.push_back(ids.back());
  }
  EXPECT_EQ(once(even), std::string(even.size(), 'f'));
  const std::string admitted = once(ids);
  for (std::size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(admitted[i], i % 2 == 0 ? 'd' : 'f') << ids[i];
}

TEST_P(InboxContract, two_handlers_see_the_same_id_once_each) {  // hazard: id-scope
  once({"a"});
  ports::InboxScope other = scope(fence_);
  other.handler = store().register_handler("notify");
  const auto session = store().open_session();
  EXPECT_EQ(admit(*session, other, entries({"a"})), "f");
  session->commit();
}

TEST_P(InboxContract, hostile_ids_are_bytes_like_any_other) {  // hazard: text-ids
  using namespace std::string_literals;
  const std::vector<std::string> ids{"nul\0one"s,
                                     "nul\0two"s,
                                     "\xff\xfe",
                                     "'; DROP TABLE inbox; --",
                                     "",
                                     std::string(1 << 20, 'x'),
                                     std::string(1 << 20, 'x') + "y"};
  const auto session = store().open_session();
  EXPECT_EQ(admit(*session, ids), "fffffff");
  session->commit();
  EXPECT_EQ(admit(*session, ids), "ddddddd");
  session->rollback();
}

TEST_P(InboxContract, fingerprints_tell_another_body_under_the_same_id) {
  const auto entry = [](const char* id, std::optional<std::int64_t> fingerprint) {
    return ports::InboxEntry{MessageId::from(id), 0, fingerprint};
  };
  const auto session = store().open_session();
  EXPECT_EQ(
      admit(*session, scope(fence_), {entry("a", 1), entry("b", -2), entry("none", {}), entry("a", 1), entry("a", 9)}),
      "fffdm");
  session->commit();
  EXPECT_EQ(
      admit(*session, scope(fence_), {entry("a", 9), entry("b", -2), entry("none", 5), entry("a", {}), entry("c", 1)}),
      "mdddf");
}

TEST_P(InboxContract, rollback_leaves_nothing) {
  const auto session = store().open_session();
  EXPECT_EQ(admit(*session, {"a"}), "f");
  session->transaction().exec(kEffect, "a");
  session->transaction().defer(kEffect, "a");
  session->rollback();
  EXPECT_THAT(world_->effects(), IsEmpty());
  EXPECT_EQ(admit(*session, {"a"}), "f");
  session->rollback();
  session->rollback();
}

TEST_P(InboxContract, a_session_that_is_destroyed_rolls_back) {
  {
    const auto session = store().open_session();
    admit(*session, {"a"});
    session->transaction().exec(kEffect, "a");
  }
  EXPECT_EQ(once({"a"}), "f");
  EXPECT_THAT(world_->effects(), ElementsAre("a"));
}

TEST_P(InboxContract, begin_rolls_back_what_was_open) {
  const auto session = store().open_session();
  admit(*session, {"a"});
  session->transaction().exec(kEffect, "lost");
  EXPECT_EQ(admit(*session, {"a"}), "f");
  session->commit();
  EXPECT_THAT(world_->effects(), IsEmpty());
}

TEST_P(InboxContract, without_a_transaction_there_is_nothing_to_use) {
  const auto session = store().open_session();
  EXPECT_THROW(session->transaction().exec(kEffect, "a"), Error);
  EXPECT_THROW(session->transaction().defer(kEffect, "a"), Error);
  EXPECT_THROW(session->commit(), Error);
}

TEST_P(InboxContract, deferred_statements_run_in_order_before_the_next_one) {
  const auto session = store().open_session();
  admit(*session, {"a", "b"});
  session->transaction().defer(kEffect, "1");
  session->at_message(1);
  session->transaction().defer(kEffect, "2");
  session->transaction().exec(kEffect, "3");
  session->transaction().defer(kEffect, "4");
  session->commit();
  EXPECT_THAT(world_->effects(), ElementsAre("1", "2", "3", "4"));
}

TEST_P(InboxContract, a_deferred_statement_copies_its_arguments) {
  const auto session = store().open_session();
  admit(*session, {"a"});
  {
    std::string text = "as it was then";
    session->transaction().defer(kEffect, text);
    text.assign("changed afterwards");
  }
  session->commit();
  EXPECT_THAT(world_->effects(), ElementsAre("as it was then"));
}

TEST_P(InboxContract, an_error_in_a_deferred_statement_names_its_message) {
  const auto session = store().open_session();
  admit(*session, {"a", "b", "c"});
  for (std::size_t i = 0; i < 3; ++i) {
    session->at_message(i);
    session->transaction().defer(i == 1 ? kRefused : kEffect, "x");
  }
  try {
    session->commit();
    FAIL() << "was committed";
  } catch (const DeferredSqlError& error) {
    EXPECT_EQ(error.message_index, 1U);
    EXPECT_EQ(error.sqlstate, "42P01");
  }
  EXPECT_THAT(world_->effects(), IsEmpty());
  EXPECT_EQ(once({"a", "b", "c"}), "fff");
}

TEST_P(InboxContract, a_deferred_error_comes_up_in_another_messages_statement) {
  const auto session = store().open_session();
  admit(*session, {"a", "b"});
  session->transaction().defer(kRefused, "x");
  session->at_message(1);
  const auto index_of = [&](auto call) -> std::size_t {
    try {
      call();
    } catch (const DeferredSqlError& error) {
      return error.message_index;
    }
    return 99;
  };
  EXPECT_EQ(index_of([&] { session->transaction().exec(kEffect, "b"); }), 0U);
  // The handler of the second message ignored the error: the commit still knows its message.
  EXPECT_EQ(index_of([&] { session->commit(); }), 0U);
  EXPECT_THAT(world_->effects(), IsEmpty());
}

TEST_P(InboxContract, a_swallowed_error_is_never_committed) {
  const auto session = store().open_session();
  admit(*session, {"a"});
  EXPECT_EQ(session->standing(), ports::Standing::sound);
  EXPECT_THROW(session->transaction().exec(kRefused, "x"), SqlError);
  EXPECT_EQ(session->standing(), ports::Standing::failed);
  try {
    session->commit();
    FAIL() << "was committed";
  } catch (const DeferredSqlError&) {
    FAIL() << "nothing was deferred";
  } catch (const SqlError& error) {
    EXPECT_EQ(error.sqlstate, "25P02");
  }
  EXPECT_EQ(once({"a"}), "f");
}

TEST_P(InboxContract, a_statement_after_a_swallowed_error_is_refused) {
  const auto session = store().open_session();
  admit(*session, {"a"});
  EXPECT_THROW(session->transaction().exec(kRefused, "x"), SqlError);
  try {
    session->transaction().exec(kEffect, "x");
    FAIL() << "ran";
  } catch (const SqlError& error) {
    EXPECT_EQ(error.sqlstate, "25P02");
  }
  session->rollback();
}

TEST_P(InboxContract, a_text_with_a_nul_is_refused_and_not_cut_short) {
  const auto session = store().open_session();
  admit(*session, {"a"});
  try {
    session->transaction().exec(kEffect, std::string_view("a\0b", 3));
    FAIL() << "ran";
  } catch (const SqlError& error) {
    EXPECT_EQ(error.sqlstate, "22021");
  }
  session->rollback();
}

TEST_P(InboxContract, a_rivals_open_transaction_is_waited_for) {  // hazard: blocked-insert
  for (const bool rival_commits : {true, false}) {
    const std::string id = rival_commits ? "committed" : "rolled back";
    const auto rival = store().open_session();
    ASSERT_EQ(admit(*rival, {id}), "f");
    auto waiting = std::async(std::launch::async, [&] { return once({id}); });
    EXPECT_EQ(waiting.wait_for(200ms), std::future_status::timeout) << "did not wait";
    rival_commits ? rival->commit() : rival->rollback();
    EXPECT_EQ(waiting.get(), rival_commits ? "d" : "f");
  }
}

TEST_P(InboxContract, a_rivals_open_transaction_is_waited_for_by_a_batch) {  // hazard: blocked-insert
  ASSERT_EQ(once({"c"}), "f");
  for (const bool rival_commits : {true, false}) {
    const std::string id = rival_commits ? "committed" : "rolled back";
    const auto rival = store().open_session();
    ASSERT_EQ(admit(*rival, {id, id + "!"}), "ff");
    auto waiting = std::async(std::launch::async, [&] { return once({id + "?", id, "c", id + "!"}); });
    EXPECT_EQ(waiting.wait_for(200ms), std::future_status::timeout) << "did not wait";
    rival_commits ? rival->commit() : rival->rollback();
    EXPECT_EQ(waiting.get(), rival_commits ? "fddd" : "ffdf");
    EXPECT_EQ(once({id, id + "!", id + "?"}), "ddd");
  }
}

TEST_P(InboxContract, waiting_for_a_rival_is_bounded) {  // hazard: blocked-insert
  const auto rival = store().open_session();
  admit(*rival, {"a"});
  const auto session = store().open_session();
  ports::InboxScope impatient = scope(fence_);
  impatient.lock_timeout = 50ms;
  EXPECT_THROW(admit(*session, impatient, entries({"a"})), StoreBusy);
  EXPECT_THROW(admit(*session, impatient, entries({"a", "b"})), StoreBusy);
  rival->rollback();
  EXPECT_EQ(admit(*session, impatient, entries({"a"})), "f");
}

TEST_P(InboxContract, batches_in_opposite_order_do_not_deadlock) {  // hazard: insert-order
  std::vector<std::string> ids;
  for (int i = 0; i < 200; ++i) ids.push_back("id" + std::to_string(i));
  const std::vector<std::string> reversed(ids.rbegin(), ids.rend());
  const auto rounds = [&](const std::vector<std::string>& order) {
    std::size_t fresh = 0;
    for (int round = 0; round < 20; ++round) {
      std::vector<std::string> batch;
      for (const auto& id : order) batch.push_back(id + "/" + std::to_string(round));
      const std::string admitted = once(batch);
      fresh += static_cast<std::size_t>(std::count(admitted.begin(), admitted.end(), 'f'));
    }
    return fresh;
  };
  auto other = std::async(std::launch::async, rounds, reversed);
  const std::size_t mine = rounds(ids);
  EXPECT_EQ(mine + other.get(), 200U * 20U);
}

TEST_P(InboxContract, a_stale_epoch_is_fenced) {  // hazard: stale-snapshot
  const Fence old = fence_;
  fence_ = claim();
  EXPECT_EQ(fence_.slot, old.slot);
  EXPECT_GT(fence_.epoch, old.epoch);
  const auto session = store().open_session();
  EXPECT_THROW(admit(*session, scope(old), entries({"a"})), Fenced);
  EXPECT_THROW(admit(*session, scope(old), {}), Fenced);
  EXPECT_THROW(session->commit(), Error);
  EXPECT_EQ(once({"a"}), "f");
  // A batch of duplicates is not fenced.
  EXPECT_EQ(once({"a"}), "d");
}

TEST_P(InboxContract, a_batch_that_waited_for_a_claim_is_fenced) {  // hazard: stale-snapshot
  const Fence old = fence_;
  const auto open = store().open_session();
  admit(*open, {"first"});
  auto claimed = std::async(std::launch::async, [&] { return claim(); });
  EXPECT_EQ(claimed.wait_for(200ms), std::future_status::timeout)
      << "a claim waits for the open batch of the old owner";
  open->commit();
  EXPECT_GT(claimed.get().epoch, old.epoch);
  EXPECT_THROW(admit(*open, scope(old), entries({"second"})), Fenced);
  EXPECT_EQ(world_->effects().size(), 0U);
}

TEST_P(InboxContract, a_claim_gives_up_on_an_old_owner_in_time) {
  const auto open = store().open_session();
  admit(*open, {"a"});
  const TopicPartition at{"payments", 0};
  EXPECT_THROW(store().partitions().claim_partitions("group", {&at, 1}, 50ms), StoreBusy);
  open->commit();
  EXPECT_EQ(claim().epoch.value, fence_.epoch.value + 1) << "a claim that failed changed nothing";
}

TEST_P(InboxContract, a_commit_in_doubt_can_be_looked_up) {  // hazard: commit-in-doubt
  for (const bool carried_out : {true, false}) {
    const std::string id = carried_out ? "carried out" : "lost";
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {id}), "f");
    session->transaction().exec(kEffect, id);
    world_->lose_next_commit(carried_out);
    EXPECT_THROW(session->commit(), CommitInDoubt);
    const MessageId ids[] = {MessageId::from(id), MessageId::from("never seen")};
    EXPECT_THAT(session->settled(handler_, {}, ids), ElementsAre(carried_out, false));
    EXPECT_EQ(once({id}), carried_out ? "d" : "f");
  }
  EXPECT_THAT(world_->effects(), ElementsAre("carried out", "lost"));
}

TEST_P(InboxContract, a_response_is_kept_with_its_id) {
  const std::vector<MessageId> ids{MessageId::from("a"), MessageId::from("b"), MessageId::from("c")};
  const std::string bytes("\0\xff\n", 3);
  const auto session = store().open_session();
  admit(*session, {"a", "b"});
  session->respond(ids[0], bytes);
  session->respond(ids[1], "");
  EXPECT_THAT(session->responses(handler_, ids), ElementsAre(bytes, "", std::nullopt)) << "its own, before the commit";
  EXPECT_THAT(store().open_session()->responses(handler_, ids), Each(std::nullopt))
      << "nobody else's, before the commit";
  session->commit();
  EXPECT_THAT(store().open_session()->responses(handler_, ids), ElementsAre(bytes, "", std::nullopt));
  EXPECT_THAT(session->responses(store().register_handler("refund"), ids), Each(std::nullopt));  // hazard: id-scope
  EXPECT_THAT(session->responses(handler_, {}), IsEmpty());
}

TEST_P(InboxContract, a_rolled_back_response_was_never_given) {
  const std::vector<MessageId> ids{MessageId::from("a")};
  const auto session = store().open_session();
  admit(*session, {"a"});
  session->respond(ids[0], "first");
  session->rollback();
  admit(*session, {"a"});
  session->respond(ids[0], "second");
  session->commit();
  EXPECT_THAT(session->responses(handler_, ids), ElementsAre("second"));
}

TEST_P(InboxContract, what_is_published_waits_in_the_outbox_after_the_commit_and_not_before) {
  const auto outbox = store().outbox();
  const auto shards = outbox->keep_shards("relay", std::chrono::seconds(30));
  EXPECT_EQ(shards.size(), 16U);
  const auto session = store().open_session();
  admit(*session, {"a"});
  OwnedMessage message;
  message.topic = "orders";
  message.key = std::string("k\0", 2);
  message.payload = std::string("\xff\0", 2);
  message.headers = {{"type", "made"}, {"none", std::nullopt}};
  session->publish(message, MessageId::from("first"));
  EXPECT_THAT(outbox->waiting(shards, 10), IsEmpty());
  session->rollback();
  EXPECT_THAT(outbox->waiting(shards, 10), IsEmpty());
  admit(*session, {"a"});
  session->publish(message, MessageId::from("second"));
  message.key.reset();
  message.payload.reset();
  session->publish(message, MessageId::from("third"));
  session->commit();
  auto waiting = outbox->waiting(shards, 100);
  ASSERT_EQ(waiting.size(), 2U);
  if (waiting[0].message.key) std::swap(waiting[0], waiting[1]);
  EXPECT_EQ(waiting[0].message.payload, std::nullopt);
  const OwnedMessage& keyed = waiting[1].message;
  EXPECT_EQ(keyed.topic, "orders");
  EXPECT_EQ(keyed.key, std::string("k\0", 2));
  EXPECT_EQ(keyed.payload, std::string("\xff\0", 2));
  EXPECT_EQ(keyed.partition, -1);
  EXPECT_EQ(keyed.headers,
            (std::vector<Header>{
                {"type", "made"}, {"none", std::nullopt}, {"message-id", MessageId::from("second").text()}}));
}

TEST_P(InboxContract, settled_sees_only_what_is_committed) {
  once({"a"});
  const auto session = store().open_session();
  admit(*session, {"b"});
  const MessageId ids[] = {MessageId::from("b"), MessageId::from("a"), MessageId::from("c"), MessageId::from("a")};
  EXPECT_THAT(session->settled(handler_, {}, ids), ElementsAre(false, true, false, true));
  EXPECT_THAT(session->settled(store().register_handler("another"), {}, ids), ElementsAre(false, false, false, false));
  EXPECT_THAT(session->settled(handler_, {}, {}), IsEmpty());
}

TEST_P(InboxContract, away_is_said_and_comes_back_by_itself) {
  const auto session = store().open_session();
  admit(*session, {"a"});
  session->transaction().exec(kEffect, "lost");
  world_->go_away();
  EXPECT_THROW(session->transaction().exec(kEffect, "b"), StoreUnavailable);
  EXPECT_THROW(admit(*session, {"b"}), StoreUnavailable);
  const MessageId id = MessageId::from("a");
  EXPECT_THROW(session->settled(handler_, {}, {&id, 1}), StoreUnavailable);
  EXPECT_THROW(store().register_handler("x"), StoreUnavailable);
  EXPECT_THROW(store().check_schema(), StoreUnavailable);
  EXPECT_THROW(claim(), StoreUnavailable);
  world_->come_back();
  EXPECT_EQ(once({"a"}), "f");
  EXPECT_EQ(admit(*session, {"a"}), "d");
  EXPECT_THAT(world_->effects(), ElementsAre("a"));
}

}  // namespace
}  // namespace turnstile::test
