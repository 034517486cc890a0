// The contract of the outbox: the owners of shards, the waiting messages, and their results.

#include <gmock/gmock.h>

#include <map>
#include <set>

#include "inbox_fixture.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OutboxContract : public InboxContract {
 protected:
  void SetUp() override {
    InboxContract::SetUp();
    if (world_) outbox_ = store().outbox();
  }
  /// A transaction with a message for each of these, named after its payload.
  void publish(const std::vector<std::pair<std::string, std::string>>& keys_and_payloads) {
    const auto session = store().open_session();
    session->begin(scope(fence_), {});
    for (const auto& [key, payload] : keys_and_payloads) {
      OwnedMessage message;
      message.topic = "orders";
      message.key = key;
      message.payload = payload;
      session->publish(message, MessageId::from(payload));
    }
    session->commit();
  }
  void schedule(const std::string& key, const std::string& payload, Timestamp not_before) {
    const auto session = store().open_session();
    session->begin(scope(fence_), {});
    OwnedMessage message;
    message.topic = "orders";
    message.key = key;
    message.payload = payload;
    message.not_before = not_before;
    session->publish(message, MessageId::from(payload));
    session->commit();
  }
  static std::vector<std::string> payloads(const std::vector<ports::OutboxRecord>& records) {
    std::vector<std::string> all;
    for (const auto& record : records) all.push_back(record.message.payload.value_or("null"));
    return all;
  }
  std::vector<ports::OutboxRecord> waiting(std::size_t most = 1'000) {
    return outbox_->waiting(outbox_->keep_shards("relay", 30s), most);
  }

  std::shared_ptr<ports::Outbox> outbox_;
};

INSTANTIATE_TEST_SUITE_P(Outbox, OutboxContract, inbox_kinds(), kind_name);

TEST_P(OutboxContract, an_id_that_the_writer_has_given_is_sent_as_it_is) {
  const auto session = store().open_session();
  session->begin(scope(fence_), {});
  OwnedMessage message;
  message.topic = "orders";
  message.payload = "given";
  message.headers = {{"a", "1"}, {"message-id", "order-17"}, {"b", "2"}};
  session->publish(message, MessageId::from("order-17"));
  message.payload = "no id";
  message.headers = {{"message-id", ""}, {"b", "2"}};
  session->publish(message, MessageId::from("another"));
  session->commit();

  std::map<std::string, std::vector<Header>> headers;
  for (const auto& record : waiting()) headers[*record.message.payload] = record.message.headers;
  EXPECT_THAT(headers["given"], ElementsAre(Header{"a", "1"}, Header{"message-id", "order-17"}, Header{"b", "2"}));
  EXPECT_THAT(headers["no id"], ElementsAre(Header{"b", "2"}, Header{"message-id", MessageId::from("another").text()}));
}

TEST_P(OutboxContract, one_key_keeps_its_order_over_transactions) {
  publish({{"k", "1"}, {"other", "x"}, {"k", "2"}});
  publish({{"k", "3"}});
  std::vector<std::string> of_k;
  for (const auto& record : waiting()) {
    if (record.message.key == "k") of_k.push_back(*record.message.payload);
  }
  EXPECT_THAT(of_k, ElementsAre("1", "2", "3"));
}

TEST_P(OutboxContract, a_scheduled_message_waits_for_its_time) {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  schedule("k", "later", now + 1h);
  schedule("k", "soon", now + 400ms);
  schedule("k", "past", now - 1h);
  publish({{"k", "at once"}});
  EXPECT_THAT(payloads(waiting()), ElementsAre("past", "at once"));
  EXPECT_EQ(outbox_->lag().scheduled, 2);
  const auto due = outbox_->release_due({}, 0);
  EXPECT_EQ(due.moved, 0U);
  ASSERT_TRUE(due.next.has_value());
  EXPECT_LE(*due.next, 400ms);
  const auto shards = outbox_->keep_shards("relay", 30s);
  EXPECT_TRUE(eventually([&] { return outbox_->release_due(shards, 10).moved == 1; }));
  EXPECT_THAT(payloads(waiting()), ElementsAre("past", "at once", "soon"));
  EXPECT_EQ(outbox_->lag().scheduled, 1);
  EXPECT_GT(*outbox_->release_due({}, 0).next, 59min);
}

TEST_P(OutboxContract, scheduled_messages_of_a_key_come_in_the_order_of_their_times) {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  for (int n = 9; n >= 0; --n) schedule("k", std::to_string(n), now + 300ms + n * 1ms);
  const auto shards = outbox_->keep_shards("relay", 30s);
  EXPECT_EQ(outbox_->release_due({}, 10).moved, 0U) << "only the owner of the shards moves them";
  std::size_t moved = 0;
  EXPECT_TRUE(eventually([&] { return (moved += outbox_->release_due(shards, 3).moved) == 10; }));
  EXPECT_THAT(payloads(waiting()), ElementsAre("0", "1", "2", "3", "4", "5", "6", "7", "8", "9"));
}

TEST_P(OutboxContract, a_time_after_the_year_9999_is_refused) {
  schedule("k", "last", ports::kLatestDue);
  EXPECT_EQ(outbox_->lag().scheduled, 1);
  EXPECT_THROW(schedule("k", "too late", ports::kLatestDue + 1ms), Error);
  EXPECT_THROW(schedule("k", "nonsense", Timestamp::max()), Error);
}

TEST_P(OutboxContract, what_was_sent_is_gone) {
  publish({{"a", "1"}, {"a", "2"}});
  const auto records = waiting();
  const ports::OutboxRecord* first[] = {&records.at(0)};
  outbox_->remove(first);
  EXPECT_THAT(payloads(waiting()), ElementsAre("2"));
  outbox_->remove(first);  // for example by another relay
  EXPECT_THAT(payloads(waiting()), ElementsAre("2"));
}

TEST_P(OutboxContract, what_is_refused_is_put_aside_and_the_next_goes_on) {
  publish({{"a", "1"}, {"a", "2"}});
  outbox_->refuse(waiting().at(0), "too large \0 for the broker");
  EXPECT_THAT(payloads(waiting()), ElementsAre("2"));
  const ports::OutboxLag lag = outbox_->lag();
  EXPECT_EQ(lag.waiting, 1);
  EXPECT_EQ(lag.refused, 1);
}

TEST_P(OutboxContract, the_lag_grows_while_nobody_sends) {
  EXPECT_EQ(outbox_->lag().waiting, 0);
  EXPECT_EQ(outbox_->lag().oldest, 0ms);
  publish({{"a", "1"}});
  EXPECT_TRUE(eventually([&] { return outbox_->lag().oldest >= 20ms; }));
  EXPECT_EQ(outbox_->lag().waiting, 1);
}

TEST_P(OutboxContract, a_full_shard_does_not_starve_the_others) {
  std::vector<std::pair<std::string, std::string>> many(200, {"full", "f"});
  std::set<std::string> seen;
  // Enough keys for every shard.
  for (int i = 0; i < 200; ++i) many.emplace_back("key-" + std::to_string(i), "x");
  publish(many);
  std::set<ports::OutboxShard> shards;
  for (const auto& record : waiting(1'000)) shards.insert(record.shard);
  EXPECT_THAT(shards, SizeIs(16));
}

TEST_P(OutboxContract, large_records_come_a_few_at_a_time) {
  std::vector<std::pair<std::string, std::string>> large;
  for (int i = 0; i < 6; ++i) large.emplace_back("k", std::string(100'000, static_cast<char>('a' + i)));
  publish(large);
  const auto shards = outbox_->keep_shards("relay", 30s);
  EXPECT_THAT(outbox_->waiting(shards, 1'000, 1), SizeIs(1)) << "one, however large";
  EXPECT_THAT(outbox_->waiting(shards, 1'000, 250'000 * shards.size()), SizeIs(3)) << "none is begun past its part";
  EXPECT_THAT(outbox_->waiting(shards, 1'000, 10'000'000 * shards.size()), SizeIs(6));
}

TEST_P(OutboxContract, a_shard_has_one_relay_at_a_time) {
  EXPECT_THAT(outbox_->keep_shards("one", 30s), SizeIs(16));
  EXPECT_THAT(outbox_->keep_shards("two", 30s), IsEmpty());
  EXPECT_THAT(outbox_->keep_shards("one", 30s), SizeIs(16)) << "prolonged";
  outbox_->leave_shards("one");
  EXPECT_THAT(outbox_->keep_shards("two", 30s), SizeIs(16));
  outbox_->leave_shards("one");
  EXPECT_THAT(outbox_->keep_shards("one", 30s), IsEmpty()) << "who has nothing gives nothing back";
}

TEST_P(OutboxContract, the_shards_of_a_dead_relay_are_free_when_its_lease_ends) {
  EXPECT_THAT(outbox_->keep_shards("dead", 50ms), SizeIs(16));
  EXPECT_TRUE(eventually([&] { return outbox_->keep_shards("next", 30s).size() == 16; }));
  EXPECT_THAT(outbox_->keep_shards("dead", 30s), IsEmpty());
}

TEST_P(OutboxContract, away_is_said) {
  publish({{"a", "1"}});
  world_->go_away();
  EXPECT_THROW(outbox_->waiting(std::vector<ports::OutboxShard>{0}, 10), StoreUnavailable);
  world_->come_back();
  EXPECT_TRUE(eventually([&] { return payloads(waiting()) == std::vector<std::string>{"1"}; }));
}

}  // namespace
}  // namespace turnstile::test
