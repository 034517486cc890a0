// The contract of every inbox for batches of numbered requests.

#include <gmock/gmock.h>

#include "inbox_fixture.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::Optional;

class RequestsContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (!IsSkipped()) shop_ = open();
  }
  MessageId open(const std::string& name = "shop") { return store().producers()->open({.name = name}).id; }
  [[nodiscard]] ports::InboxScope numbered() const {
    ports::InboxScope numbered = scope(fence_);
    numbered.mode = Mode::numbered;
    numbered.window = window_;
    return numbered;
  }
  static Timestamp clock() {
    return std::chrono::time_point_cast<Timestamp::duration>(std::chrono::system_clock::now());
  }
  /// A record with this request, after the earlier ones.
  ports::InboxEntry record(const MessageId& producer, std::int64_t number, std::int64_t acked = 0) {
    ports::InboxEntry entry;
    entry.id = MessageId::from(producer.text() + std::to_string(number));
    entry.offset = offset_++;
    entry.request = ports::Request{producer, number, acked, clock() - 1s};
    return entry;
  }
  std::vector<ports::InboxEntry> records(std::initializer_list<std::int64_t> numbers, std::int64_t acked = 0) {
    std::vector<ports::InboxEntry> records;
    for (const std::int64_t number : numbers) records.push_back(record(shop_, number, acked));
    return records;
  }
  /// A transaction with an effect for each fresh request, named after its number.
  std::string handle(const std::vector<ports::InboxEntry>& records, bool committed = true) {
    const auto session = store().open_session();
    const std::string admitted = admit(*session, numbered(), records);
    for (std::size_t i = 0; i < records.size(); ++i) {
      if (admitted[i] == 'f')
        session->transaction().exec(InboxFixture::kEffect, std::to_string(records[i].request->number));
    }
    if (committed) session->commit();
    return admitted;
  }
  std::string handle(std::initializer_list<std::int64_t> numbers, std::int64_t acked = 0) {
    return handle(records(numbers, acked));
  }

  MessageId shop_;
  std::int64_t window_ = 16;
  Offset offset_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Requests, RequestsContract, inbox_kinds(), kind_name);

TEST_P(RequestsContract, what_is_sent_again_is_a_duplicate) {
  EXPECT_EQ(handle({1, 2, 3}), "fff");
  EXPECT_EQ(handle({2, 4, 4, 1}), "dfdd") << "also within one batch";
  EXPECT_THAT(world_->effects(), ElementsAre("1", "2", "3", "4"));
}

TEST_P(RequestsContract, what_is_delivered_again_is_a_duplicate_however_far_back) {
  const auto first = records({1, 2, 3});
  EXPECT_EQ(handle(first), "fff");
  EXPECT_EQ(handle({500}), "f");
  EXPECT_EQ(handle(first), "ddd") << "its offsets are done";
}

TEST_P(RequestsContract, they_may_come_out_of_order_inside_the_window) {
  EXPECT_EQ(handle({5, 2, 20}), "fff");
  EXPECT_EQ(handle({3, 19, 5}), "ofd") << "3 is 17 behind 20, and the window is 16";
  EXPECT_EQ(handle({6, 4}), "fo");
}

TEST_P(RequestsContract, what_is_behind_the_window_is_not_run) {
  EXPECT_EQ(handle({1}), "f");
  EXPECT_EQ(handle({17, 1}), "fo");
  EXPECT_EQ(handle({1'000'000'000'000, 17}), "fo");
  EXPECT_THAT(world_->effects(), ElementsAre("1", "17", "1000000000000"));
}

TEST_P(RequestsContract, what_was_acknowledged_is_known_to_be_done) {
  EXPECT_EQ(handle({1, 2}), "ff");
  EXPECT_EQ(handle({40}, 2), "f");
  EXPECT_EQ(handle({1, 2, 3}), "ddo");
}

TEST_P(RequestsContract, gaps_are_normal) {
  EXPECT_EQ(handle({1, 4, 9}), "fff") << "the others went to other partitions";
  fence_ = claim(1);
  EXPECT_EQ(handle({2, 3, 5}), "fff");
}

TEST_P(RequestsContract, producers_and_handlers_count_by_themselves) {
  EXPECT_EQ(handle({1, 2}), "ff");
  const MessageId other = open("other");
  EXPECT_EQ(handle({record(other, 1), record(shop_, 2), record(other, 1)}), "fdd");
  handler_ = store().register_handler("mail");
  EXPECT_EQ(handle({1}), "f");
}

TEST_P(RequestsContract, a_rollback_leaves_no_trace) {
  EXPECT_EQ(handle(records({1, 2}, 1), false), "ff");
  EXPECT_EQ(handle({1, 2}), "ff");
}

TEST_P(RequestsContract, an_answer_to_commit_that_is_lost_doubles_nothing) {
  for (const bool carried_out : {true, false}) {
    const auto sent = records({carried_out ? 7 : 8});
    const auto session = store().open_session();
    EXPECT_EQ(admit(*session, numbered(), sent), "f");
    session->transaction().exec(InboxFixture::kEffect, std::to_string(sent[0].request->number));
    world_->lose_next_commit(carried_out);
    EXPECT_THROW(session->commit(), CommitInDoubt);
    EXPECT_EQ(handle(sent), carried_out ? "d" : "f");
    EXPECT_EQ(handle(records({sent[0].request->number})), "d");
  }
  EXPECT_THAT(world_->effects(), ElementsAre("7", "8"));
}

TEST_P(RequestsContract, an_old_owner_changes_nothing) {
  const ports::InboxScope old = numbered();
  fence_ = claim();
  const auto session = store().open_session();
  EXPECT_THROW(session->begin(old, records({1})), Fenced);
  EXPECT_EQ(handle({1}), "f");
}

TEST_P(RequestsContract, a_window_of_another_size_goes_on) {
  EXPECT_EQ(handle({1, 2, 3, 20}), "ffff");
  window_ = 64;
  EXPECT_EQ(handle({20, 19}), "df");
  EXPECT_EQ(handle({30, 20, 3, 4}), "fdoo") << "what was told apart no more is not told apart now";
  window_ = 8;
  EXPECT_EQ(handle({30, 29, 20}), "dfo");
}

// --- responses ---

TEST_P(RequestsContract, a_response_is_kept_while_it_may_be_asked_for) {
  const auto sent = records({1, 2});
  const auto session = store().open_session();
  admit(*session, numbered(), sent);
  const std::string bytes("r\0\xff", 3);
  session->respond(sent[0].id, bytes);
  session->commit();

  const auto again = records({1, 2});
  EXPECT_EQ(admit(*session, numbered(), again), "dd");
  const MessageId ids[] = {again[0].id, again[1].id};
  EXPECT_THAT(session->responses(handler_, ids), ElementsAre(Optional(bytes), std::nullopt));
  session->rollback();

  EXPECT_EQ(handle({3}, 1), "f") << "acknowledges 1";
  EXPECT_EQ(admit(*session, numbered(), records({1})), "d");
  EXPECT_THAT(session->responses(handler_, {ids, 1}), ElementsAre(std::nullopt));
}

TEST_P(RequestsContract, a_response_behind_the_window_is_dropped) {
  const auto sent = records({1});
  const auto session = store().open_session();
  admit(*session, numbered(), sent);
  session->respond(sent[0].id, "r");
  session->commit();
  EXPECT_EQ(handle({2}), "f");
  const auto kept = [&] {
    admit(*session, numbered(), sent);
    const auto responses = session->responses(handler_, {&sent[0].id, 1});
    session->rollback();
    return responses.at(0);
  };
  EXPECT_THAT(kept(), Optional(std::string("r")));
  EXPECT_EQ(handle({17}), "f");
  EXPECT_EQ(kept(), std::nullopt);
}

// --- sessions ---

TEST_P(RequestsContract, an_unknown_producer_is_not_run) {
  EXPECT_EQ(handle({record(MessageId::from("nobody"), 1), record(shop_, 1)}), "nf");
}

TEST_P(RequestsContract, what_is_sent_after_its_session_has_expired_is_not_run) {
  const auto producers = store().producers();
  const auto before = records({1});
  EXPECT_EQ(producers->expire(), 0);
  world_->age_producers(300'000ms - 60s);
  EXPECT_TRUE(producers->heartbeat(shop_));
  world_->age_producers(300'000ms - 60s);
  EXPECT_EQ(producers->expire(), 0) << "a heartbeat came in between";
  world_->age_producers(61s);
  EXPECT_EQ(producers->expire(), 1);
  EXPECT_FALSE(producers->heartbeat(shop_));
  ports::InboxEntry after = record(shop_, 2);
  after.request->sent = clock() + 1s;
  EXPECT_EQ(handle({after}), "n");
  ports::InboxEntry timeless = record(shop_, 3);
  timeless.request->sent = {};
  EXPECT_EQ(handle({timeless}), "n");
}

TEST_P(RequestsContract, what_was_sent_while_its_session_lived_runs_once_afterwards) {
  const auto sent = records({1});
  ports::InboxEntry again = sent[0];
  world_->age_producers(300'001ms);
  EXPECT_EQ(store().producers()->expire(), 1);
  EXPECT_EQ(handle(sent), "f");
  again.offset = offset_++;
  EXPECT_EQ(handle({again}), "d");
}

TEST_P(RequestsContract, a_session_is_forgotten_in_the_end) {
  const auto producers = store().producers();
  EXPECT_EQ(handle({1}), "f");
  world_->age_producers(300'001ms);
  EXPECT_EQ(producers->expire(), 1);
  world_->age_producers(std::chrono::hours(8 * 24) - 1h);
  producers->expire();
  EXPECT_TRUE(producers->secrets({&shop_, 1}).at(0));
  world_->age_producers(1h + 1s);
  producers->expire();
  EXPECT_EQ(producers->secrets({&shop_, 1}).at(0), std::nullopt);
  EXPECT_EQ(handle({1}), "n");
}

TEST_P(RequestsContract, a_session_that_is_opened_by_its_id_goes_on) {
  const auto producers = store().producers();
  const MessageId id = MessageId::from("dead letter 17");
  const auto first = producers->open({.name = "dlq", .id = id});
  EXPECT_EQ(first.id, id);
  EXPECT_EQ(handle({record(id, 1)}), "f");
  world_->age_producers(300'001ms);
  producers->expire();
  const auto again = producers->open({.name = "dlq", .id = id});
  EXPECT_EQ(again.secret, first.secret);
  EXPECT_TRUE(producers->heartbeat(id));
  EXPECT_EQ(handle({record(id, 1), record(id, 2)}), "df");
}

TEST_P(RequestsContract, secrets_are_long_and_differ) {
  const auto producers = store().producers();
  const auto one = producers->open({.name = "o'clock\0"}), other = producers->open({.name = ""});
  EXPECT_NE(one.id, other.id);
  EXPECT_NE(one.secret, other.secret);
  EXPECT_GE(one.secret.size(), 32U);
  const MessageId asked[] = {other.id, MessageId::from("nobody"), one.id};
  EXPECT_THAT(producers->secrets(asked), ElementsAre(Optional(other.secret), std::nullopt, Optional(one.secret)));
}

TEST_P(RequestsContract, a_store_that_is_away_says_so) {
  const auto producers = store().producers();
  world_->go_away();
  EXPECT_THROW(producers->heartbeat(shop_), StoreUnavailable);
  EXPECT_THROW(producers->open({.name = "x"}), StoreUnavailable);
  EXPECT_THROW(producers->expire(), StoreUnavailable);
  world_->come_back();
  EXPECT_TRUE(producers->heartbeat(shop_));
}

}  // namespace
}  // namespace turnstile::test
