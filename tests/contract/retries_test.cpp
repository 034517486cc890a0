// The contract of stored retries: which record of a message may run, when a message comes back, and the order of keys.

#include <gmock/gmock.h>

#include "inbox_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ports::RetryTurn;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class RetriesContract : public InboxContract {
 protected:
  static OwnedMessage record(const std::string& id, const std::string& key) {
    OwnedMessage message;
    message.topic = "payments";
    message.partition = 0;
    message.offset = static_cast<Offset>(id.front());
    message.key = key;
    message.payload = id;
    message.headers = {{"message-id", id}, {"null", std::nullopt}};
    return message;
  }
  static std::optional<std::string> header(const OwnedMessage& message, std::string_view name) {
    for (const Header& header : message.headers) {
      if (header.name == name) return header.value;
    }
    return std::nullopt;
  }
  /// A transaction that stores the message, and an effect that must not be left over.
  void defer(const std::string& id, const std::string& key, std::chrono::milliseconds delay = 0ms,
             const std::optional<ports::RetryRef>& back = {}, bool in_order = true) {
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {id}), "f");
    session->defer_retry({.id = MessageId::from(id),
                          .back = back,
                          .record = record(id, key),
                          .attempts = back ? back->attempts + 1 : 1,
                          .delay = delay,
                          .in_order = in_order,
                          .error = "the provider is down"});
    session->commit();
  }
  RetryTurn turn(const std::string& id, const std::optional<ports::RetryRef>& back = {},
                 std::optional<std::string_view> key = {}) {
    const auto session = store().open_session();
    EXPECT_EQ(admit(*session, {id}), "f");
    return session->retry_turns(std::vector<ports::RetryQuestion>{{MessageId::from(id), back, key}}).front();
  }
  void settle(const std::string& id, const ports::RetryRef& back) {
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {id}), "f");
    session->end_retry(back);
    session->commit();
  }
  /// What the relay sends now.
  std::vector<OwnedMessage> send() {
    const auto outbox = store().outbox();
    const auto shards = outbox->keep_shards("relay", 30s);
    outbox->release_due(shards, 1'000);
    std::vector<OwnedMessage> sent;
    const auto records = outbox->waiting(shards, 1'000);
    std::vector<const ports::OutboxRecord*> gone;
    for (const auto& record : records) {
      sent.push_back(record.message);
      gone.push_back(&record);
    }
    if (!gone.empty()) outbox->remove(gone);
    return sent;
  }
  std::optional<ports::RetryRef> send_one() {
    const auto sent = send();
    EXPECT_THAT(sent, SizeIs(1));
    return sent.empty() ? std::nullopt : ports::RetryRef::parse(header(sent[0], kRetry).value_or(""));
  }
};

INSTANTIATE_TEST_SUITE_P(Retries, RetriesContract, all_inbox_kinds(), kind_name);

TEST_P(RetriesContract, a_stored_message_comes_back_as_the_record_that_failed) {
  defer("a", "k");
  const auto sent = send();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].topic, "payments");
  EXPECT_EQ(sent[0].key, "k");
  EXPECT_EQ(sent[0].payload, "a");
  EXPECT_EQ(header(sent[0], "message-id"), "a");
  EXPECT_EQ(header(sent[0], kReplayedFrom), "payments[0]@97");
  EXPECT_EQ(header(sent[0], kReplayedFor), "charge");
  const auto back = ports::RetryRef::parse(header(sent[0], kRetry).value_or(""));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->attempts, 1);
  EXPECT_THAT(send(), IsEmpty());
}

TEST_P(RetriesContract, the_outbox_counts_what_is_stored) {
  const auto stored = [this] { return store().outbox()->lag().retries; };
  EXPECT_EQ(stored(), 0);
  defer("a", "k");
  defer("b", "k");
  EXPECT_EQ(stored(), 2);
  const auto back = send_one();
  EXPECT_EQ(stored(), 2) << "what was sent again is not settled yet";
  settle("a", *back);
  EXPECT_EQ(stored(), 1);
}

TEST_P(RetriesContract, its_id_has_not_taken_effect) {
  defer("a", "k");
  EXPECT_FALSE(store().find(handler_, MessageId::from("a")));
  EXPECT_EQ(once({"a"}), "f");
}

TEST_P(RetriesContract, only_the_record_that_came_back_runs) {
  EXPECT_EQ(turn("a"), RetryTurn::runs);
  defer("a", "k");
  EXPECT_EQ(turn("a"), RetryTurn::stored);
  EXPECT_EQ(turn("a", ports::RetryRef{1'000'000, 1}), RetryTurn::over);
  const auto back = send_one();
  EXPECT_EQ(turn("a"), RetryTurn::stored);
  EXPECT_EQ(turn("a", back), RetryTurn::runs);
  EXPECT_EQ(turn("a", ports::RetryRef{back->number, 2}), RetryTurn::over);
  settle("a", *back);
  EXPECT_EQ(once({"a"}), "d");
}

TEST_P(RetriesContract, a_record_of_an_earlier_attempt_is_over) {
  defer("a", "k");
  const auto first = send_one();
  defer("a", "k", 0ms, first);
  EXPECT_EQ(turn("a", first), RetryTurn::over);
  const auto second = send_one();
  EXPECT_EQ(second, (ports::RetryRef{first->number, 2}));
  EXPECT_EQ(turn("a", second), RetryTurn::runs);
  // Neither a late end nor a late deferral of the first attempt changes the row.
  const auto session = store().open_session();
  admit(*session, {"a"});
  session->end_retry(*first);
  session->rollback();
  defer("a", "k", 0ms, first);
  EXPECT_EQ(turn("a", second), RetryTurn::runs);
}

TEST_P(RetriesContract, another_record_of_a_stored_message_changes_nothing) {
  defer("a", "k", 1h);
  defer("a", "other", 0ms);
  EXPECT_THAT(send(), IsEmpty());
  EXPECT_EQ(turn("a"), RetryTurn::stored);
}

TEST_P(RetriesContract, later_messages_of_a_key_wait_until_it_is_settled) {
  defer("a", "k");
  EXPECT_EQ(turn("b", {}, "k"), RetryTurn::behind);
  EXPECT_EQ(turn("b", {}, "other"), RetryTurn::runs);
  EXPECT_EQ(turn("b"), RetryTurn::runs);
  defer("b", "k");
  defer("c", "k");
  defer("x", "other");
  const auto sent = send();
  std::vector<std::string> payloads;
  for (const auto& message : sent) payloads.push_back(*message.payload);
  EXPECT_THAT(payloads, ::testing::UnorderedElementsAre("a", "x"));
  const auto back =
      ports::RetryRef::parse(header(*payloads.front().c_str() == 'a' ? sent[0] : sent[1], kRetry).value());
  EXPECT_THAT(send(), IsEmpty());
  settle("a", *back);
  const auto next = send();
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].payload, "b");
  EXPECT_THAT(send(), IsEmpty());
}

TEST_P(RetriesContract, later_messages_pass_a_message_that_is_not_in_order) {
  defer("a", "k", 1h, {}, false);
  EXPECT_EQ(turn("b", {}, "k"), RetryTurn::runs);
  defer("b", "k", 0ms, {}, false);
  EXPECT_THAT(send(), SizeIs(1));
}

TEST_P(RetriesContract, what_is_due_later_stays) {
  defer("a", "k", 1h);
  EXPECT_THAT(send(), IsEmpty());
  const auto next = store().outbox()->release_due({}, 0).next;
  ASSERT_TRUE(next);
  EXPECT_GT(*next, 59min);
  EXPECT_LE(*next, 1h);
}

TEST_P(RetriesContract, a_rollback_stores_and_ends_nothing) {
  defer("a", "k");
  const auto back = send_one();
  const auto session = store().open_session();
  admit(*session, {"a", "b"});
  session->end_retry(*back);
  session->defer_retry({.id = MessageId::from("b"), .record = record("b", "k"), .attempts = 1});
  session->rollback();
  EXPECT_EQ(turn("a", back), RetryTurn::runs);
  EXPECT_EQ(turn("b"), RetryTurn::runs);
}

TEST_P(RetriesContract, a_dead_letter_ends_the_retry) {
  defer("a", "k");
  defer("b", "k");
  const auto back = send_one();
  EXPECT_TRUE(store().dead_letters().record_dead({.handler = handler_,
                                                  .fence = fence_,
                                                  .record = record("a", "k"),
                                                  .id = MessageId::from("a"),
                                                  .reason = DeadReason::failed,
                                                  .error = "down",
                                                  .attempts = 2,
                                                  .dead_letter = {},
                                                  .retry = back}));
  EXPECT_EQ(turn("a", back), RetryTurn::over);
  const auto next = send();
  ASSERT_THAT(next, SizeIs(1));
  EXPECT_EQ(next[0].payload, "b");
}

TEST_P(RetriesContract, two_transactions_that_store_a_key_leave_one_of_them_due) {
  const auto first = store().open_session(), second = store().open_session();
  const Fence other = claim(1);
  admit(*first, {"a"});
  ASSERT_EQ(admit(*second, scope(other), entries({"b"})), "f");
  first->defer_retry({.id = MessageId::from("a"), .record = record("a", "k"), .attempts = 1, .in_order = true});
  first->commit();
  second->defer_retry({.id = MessageId::from("b"), .record = record("b", "k"), .attempts = 1, .in_order = true});
  second->commit();
  EXPECT_THAT(send(), SizeIs(1));
}

TEST_P(RetriesContract, a_fenced_owner_stores_nothing) {
  const auto session = store().open_session();
  claim();
  EXPECT_THROW(admit(*session, {"a"}), Fenced);
}

}  // namespace
}  // namespace turnstile::test
