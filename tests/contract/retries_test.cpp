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
  static void write_deferred(ports::InboxSession& session, const ports::DeferredRetry& retry) {
    session.write_retries({.taken_back = {}, .deferred = {retry}, .settled = {}});
  }
  static void write_settled(ports::InboxSession& session, const ports::RetryRef& back) {
    session.write_retries({.taken_back = {}, .deferred = {}, .settled = {back}});
  }
  /// A transaction that stores the message, and an effect that must not be left over.
  void defer(const std::string& id, const std::string& key, std::chrono::milliseconds delay = 0ms,
             const std::optional<ports::RetryRef>& back = {}, bool in_order = true) {
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {id}), "f");
    write_deferred(*session, {.id = MessageId::from(id),
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
    write_settled(*session, back);
    session->commit();
  }
  /// What the relay would send now, with the outbox that it comes from.
  struct DueRecords {
    std::shared_ptr<ports::Outbox> outbox;
    std::vector<ports::OutboxRecord> records;

    void remove() {
      std::vector<const ports::OutboxRecord*> sent;
      for (const auto& record : records) sent.push_back(&record);
      if (!sent.empty()) outbox->remove(sent);
    }
  };
  DueRecords fetch() {
    DueRecords due{store().outbox(), {}};
    const auto shards = due.outbox->keep_shards("relay", 30s);
    due.outbox->release_due(shards, 1'000);
    due.records = due.outbox->waiting(shards, 1'000);
    return due;
  }
  /// What the relay sends now.
  std::vector<OwnedMessage> send() {
    DueRecords due = fetch();
    due.remove();
    std::vector<OwnedMessage> sent;
    for (auto& record : due.records) sent.push_back(std::move(record.message));
    return sent;
  }
  std::optional<ports::RetryRef> send_one() {
    const auto sent = send();
    EXPECT_THAT(sent, SizeIs(1));
    return sent.empty() ? std::nullopt : ref_of(sent[0]);
  }
  static std::optional<ports::RetryRef> ref_of(const OwnedMessage& message) {
    return ports::RetryRef::parse(header(message, kRetry).value_or(""));
  }
  static std::vector<std::string> payloads_of(const std::vector<OwnedMessage>& messages) {
    std::vector<std::string> payloads;
    for (const auto& message : messages) payloads.push_back(message.payload.value_or(""));
    return payloads;
  }
  /// It waits only for its key.
  void put_back(const std::string& id, const ports::RetryRef& back) {
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {id}), "f");
    write_deferred(*session, {.id = MessageId::from(id),
                              .back = back,
                              .record = record(id, "k"),
                              .attempts = back.attempts,
                              .in_order = true});
    session->commit();
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

TEST_P(RetriesContract, a_record_names_the_group_if_only_that_may_use_the_name_of_its_handler) {
  defer("a", "k");
  EXPECT_EQ(header(fetch().records.at(0).message, kReplayedGroup), std::nullopt);
  ASSERT_EQ(store().first_group(handler_, "group a"), "group a");
  defer("b", "other");
  EXPECT_EQ(header(send().back(), kReplayedGroup), "group a");
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

// It is of another schema, whose rows have the same numbers.
TEST_P(RetriesContract, a_record_that_the_relay_has_not_sent_does_not_run) {
  defer("a", "k");
  const auto a = send_one();
  ASSERT_TRUE(a.has_value());
  defer("b", "other", 1h);
  defer("c", "k");
  EXPECT_EQ(turn("b", ports::RetryRef{a->number + 1, 1}), RetryTurn::over);
  EXPECT_EQ(turn("c", ports::RetryRef{a->number + 2, 1}, "k"), RetryTurn::over) << "it waits for its key";
  settle("a", *a);
  EXPECT_EQ(send_one(), (ports::RetryRef{a->number + 2, 1})) << "the numbers above are those of the rows";
}

// PostgreSQL was restored, and gives the numbers again; or it is of another schema.
TEST_P(RetriesContract, a_record_of_another_message_with_the_number_of_a_row_is_over) {
  defer("a", "k");
  const auto a = send_one();
  ASSERT_TRUE(a.has_value());
  for (const bool is_first : {true, false}) {
    const auto session = store().open_session();
    EXPECT_EQ(admit(*session, {"a", "b", "c"}), "fff");
    std::vector<ports::RetryQuestion> questions{{MessageId::from("a"), a, {}}};
    questions.insert(is_first ? questions.begin() : questions.end(), {MessageId::from("b"), a, {}});
    questions.push_back({MessageId::from("c"), ports::RetryRef{a->number, 7}, {}});
    const auto turns = session->retry_turns(questions);
    EXPECT_THAT(turns, is_first ? ElementsAre(RetryTurn::over, RetryTurn::runs, RetryTurn::over)
                                : ElementsAre(RetryTurn::runs, RetryTurn::over, RetryTurn::over));
  }
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
  write_settled(*session, *first);
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
  EXPECT_THAT(payloads_of(send()), ElementsAre("b", "c"));
  EXPECT_THAT(send(), IsEmpty());
}

TEST_P(RetriesContract, each_success_doubles_the_messages_of_a_key_that_are_under_way) {
  for (const char* id : {"a", "b", "c", "d", "e", "f", "g", "h"}) defer(id, "k");
  const auto a = send_one();
  settle("a", *a);
  const auto second = send();
  EXPECT_THAT(payloads_of(second), ElementsAre("b", "c"));
  for (const auto& message : second) settle(*message.payload, *ref_of(message));
  EXPECT_THAT(payloads_of(send()), ElementsAre("d", "e", "f", "g"));
}

TEST_P(RetriesContract, a_message_that_comes_back_does_not_overtake_an_earlier_one_that_failed_again) {
  for (const char* id : {"a", "b", "c", "d"}) defer(id, "k");
  settle("a", *send_one());
  const auto sent = send();
  ASSERT_THAT(payloads_of(sent), ElementsAre("b", "c"));
  const auto b = ref_of(sent[0]), c = ref_of(sent[1]);
  EXPECT_EQ(turn("c", c, "k"), RetryTurn::behind);
  {  // in one transaction with the earlier one, it may run after it
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {"b", "c"}), "ff");
    EXPECT_THAT(session->retry_turns(
                    std::vector<ports::RetryQuestion>{{MessageId::from("b"), b, "k"}, {MessageId::from("c"), c, "k"}}),
                ElementsAre(RetryTurn::runs, RetryTurn::runs));
  }
  {  // but not before it: the relay may have sent the earlier one again after the later one
    const auto session = store().open_session();
    ASSERT_EQ(admit(*session, {"b", "c"}), "ff");
    EXPECT_THAT(session->retry_turns(
                    std::vector<ports::RetryQuestion>{{MessageId::from("c"), c, "k"}, {MessageId::from("b"), b, "k"}}),
                ElementsAre(RetryTurn::behind, RetryTurn::runs));
  }
  defer("b", "k", 0ms, b);
  EXPECT_EQ(turn("c", c, "k"), RetryTurn::behind);
  put_back("c", *c);
  EXPECT_EQ(turn("c", c, "k"), RetryTurn::over);
  const auto again = send();
  ASSERT_THAT(payloads_of(again), ElementsAre("b"));
  settle("b", *ref_of(again[0]));
  const auto last = send();
  EXPECT_THAT(payloads_of(last), ElementsAre("c", "d"));
  EXPECT_EQ(ref_of(last[0]), c) << "the attempts of a message that only waited";
}

TEST_P(RetriesContract, a_message_that_is_put_back_when_none_is_before_it_any_more_is_due) {
  for (const char* id : {"a", "b", "c"}) defer(id, "k");
  settle("a", *send_one());
  const auto sent = send();
  ASSERT_THAT(payloads_of(sent), ElementsAre("b", "c"));
  const auto session = store().open_session();
  ASSERT_EQ(admit(*session, {"c"}), "f");
  EXPECT_THAT(session->retry_turns(std::vector<ports::RetryQuestion>{{MessageId::from("c"), ref_of(sent[1]), "k"}}),
              ElementsAre(RetryTurn::behind));
  settle("b", *ref_of(sent[0]));
  write_deferred(*session, {.id = MessageId::from("c"),
                            .back = ref_of(sent[1]),
                            .record = record("c", "k"),
                            .attempts = 1,
                            .in_order = true});
  session->commit();
  EXPECT_THAT(payloads_of(send()), ElementsAre("c"));
}

TEST_P(RetriesContract, no_message_waits_for_one_that_was_not_stored) {
  defer("a", "other");
  const auto session = store().open_session();
  ASSERT_EQ(admit(*session, {"a", "b", "c"}), "fff");
  session->write_retries(
      {.taken_back = {},
       .deferred = {{.id = MessageId::from("a"), .record = record("a", "k"), .attempts = 1, .in_order = true},
                    {.id = MessageId::from("b"), .record = record("b", "k"), .attempts = 1, .in_order = true},
                    {.id = MessageId::from("c"), .record = record("c", "k"), .attempts = 1, .in_order = true}},
       .settled = {}});
  session->commit();
  EXPECT_THAT(payloads_of(send()), ::testing::UnorderedElementsAre("a", "b"));
  EXPECT_EQ(turn("c"), RetryTurn::stored);
}

TEST_P(RetriesContract, messages_that_are_stored_together_keep_their_own_headers_and_order) {
  const auto session = store().open_session();
  ASSERT_EQ(admit(*session, {"a", "b", "c"}), "fff");
  auto bare = record("b", "other");
  bare.headers.clear();
  bare.key.reset();
  session->write_retries(
      {.taken_back = {},
       .deferred = {{.id = MessageId::from("a"), .record = record("a", "k"), .attempts = 1, .in_order = true},
                    {.id = MessageId::from("b"), .record = bare, .attempts = 2, .in_order = true},
                    {.id = MessageId::from("c"), .record = record("c", "k"), .attempts = 1, .in_order = true}},
       .settled = {}});
  session->commit();
  auto sent = send();
  ASSERT_THAT(payloads_of(sent), ::testing::UnorderedElementsAre("a", "b")) << "c is behind a";
  if (sent[0].payload == "b") std::swap(sent[0], sent[1]);
  EXPECT_EQ(header(sent[0], "message-id"), "a");
  EXPECT_THAT(sent[0].headers, ::testing::Contains(Header{"null", std::nullopt}));
  EXPECT_FALSE(sent[1].key);
  EXPECT_EQ(ref_of(sent[1])->attempts, 2);
  settle("a", *ref_of(sent[0]));
  const auto last = send();
  ASSERT_THAT(payloads_of(last), ElementsAre("c"));
  EXPECT_EQ(header(last[0], "message-id"), "c");
}

TEST_P(RetriesContract, a_failure_keeps_its_delay_if_the_message_before_it_is_settled_with_it) {
  for (const char* id : {"a", "b", "c", "d"}) defer(id, "k");
  settle("a", *send_one());
  const auto sent = send();
  ASSERT_THAT(payloads_of(sent), ElementsAre("b", "c"));
  const auto session = store().open_session();
  ASSERT_EQ(admit(*session, {"b", "c"}), "ff");
  session->write_retries({.taken_back = {},
                          .deferred = {{.id = MessageId::from("c"),
                                        .back = ref_of(sent[1]),
                                        .record = record("c", "k"),
                                        .attempts = 2,
                                        .delay = 1h,
                                        .in_order = true}},
                          .settled = {*ref_of(sent[0])}});
  session->commit();
  EXPECT_THAT(send(), IsEmpty()) << "c waits, and d behind it";
  EXPECT_EQ(turn("d", {}, "k"), RetryTurn::stored);
}

TEST_P(RetriesContract, later_messages_pass_a_message_that_is_not_in_order) {
  defer("a", "k", 1h, {}, false);
  EXPECT_EQ(turn("b", {}, "k"), RetryTurn::runs);
  defer("b", "k", 0ms, {}, false);
  EXPECT_THAT(send(), SizeIs(1));
}

TEST_P(RetriesContract, a_record_that_the_broker_refuses_waits_in_the_outbox) {
  defer("1", "k");
  const auto [outbox, records] = fetch();
  ASSERT_THAT(records, SizeIs(1));
  EXPECT_TRUE(outbox->refuse(records[0], "too large").has_value());
  EXPECT_EQ(outbox->lag().refused, 1);
  EXPECT_EQ(outbox->lag().retries, 1);
  EXPECT_THAT(send(), IsEmpty());
  EXPECT_FALSE(outbox->refuse(records[0], "too large").has_value()) << "it is refused already";
}

TEST_P(RetriesContract, an_entry_of_an_earlier_attempt_removes_no_later_one) {
  defer("1", "k");
  DueRecords first = fetch();
  ASSERT_THAT(first.records, SizeIs(1));
  // It comes back and fails again before the relay has removed what it sent.
  const auto back = ref_of(first.records[0].message);
  ASSERT_TRUE(back.has_value());
  defer("1", "k", 0ms, back);
  first.remove();
  const auto again = send_one();
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->attempts, 2);
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
  session->write_retries({.taken_back = {},
                          .deferred = {{.id = MessageId::from("b"), .record = record("b", "k"), .attempts = 1}},
                          .settled = {*back}});
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
  write_deferred(*first, {.id = MessageId::from("a"), .record = record("a", "k"), .attempts = 1, .in_order = true});
  first->commit();
  write_deferred(*second, {.id = MessageId::from("b"), .record = record("b", "k"), .attempts = 1, .in_order = true});
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
