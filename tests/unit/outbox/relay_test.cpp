// The relay sends what transactions published as soon as it can, in order, and by one process at a time.

#include "outbox/relay.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <mutex>

#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::SizeIs;

/// Counts the lines that are logged.
class CountingSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::atomic<int> lines{0};

 private:
  void sink_it_(const spdlog::details::log_msg&) override { ++lines; }
  void flush_() override {}
};

/// Counts how often the relay has looked.
class WatchedOutbox final : public ports::Outbox {
 public:
  explicit WatchedOutbox(std::shared_ptr<ports::Outbox> outbox) : outbox_(std::move(outbox)) {}
  std::atomic<int> found_none{0};           ///< looks for messages that found none
  std::atomic<int> looked_for_due{0};       ///< by an owner of shards
  std::atomic<bool> others_are_due{false};  ///< messages of shards that it does not have
  std::atomic<int> removals{0};
  std::atomic<bool> all_are_retries{false};  ///< returns all as stored retries
  std::atomic<bool> locked{false};           ///< remove() leaves them, as if transactions had locked them
  std::atomic<bool> busy{false};             ///< remove() fails, as while another session has locked the table
  std::atomic<bool> others{false};           ///< the records have the numbers of others, as after a failover

  std::vector<ports::OutboxShard> keep_shards(const std::string& owner, std::chrono::milliseconds lease) override {
    return outbox_->keep_shards(owner, lease);
  }
  void leave_shards(const std::string& owner) override { outbox_->leave_shards(owner); }
  std::vector<ports::OutboxRecord> waiting(std::span<const ports::OutboxShard> shards, std::size_t most,
                                           std::size_t bytes) override {
    auto records = outbox_->waiting(shards, most, bytes);
    if (records.empty()) ++found_none;
    for (auto& record : records) {
      if (all_are_retries) record.due_us = 1;
      if (!others) continue;
      record.message.headers = {{std::string(ports::kMessageIdHeader), "other"}};
      record.message.payload = "other";
    }
    return records;
  }
  ports::OutboxDue release_due(std::span<const ports::OutboxShard> shards, std::size_t most) override {
    if (!shards.empty()) ++looked_for_due;
    auto due = outbox_->release_due(shards, most);
    if (others_are_due) due.next = 0ms;
    return due;
  }
  void remove(std::span<const ports::OutboxRecord* const> records) override {
    ++removals;
    if (busy) throw StoreBusy("locked");
    if (!locked) outbox_->remove(records);
  }
  std::optional<std::int64_t> refuse(const ports::OutboxRecord& record, const std::string& why) override {
    return outbox_->refuse(record, why);
  }
  ports::OutboxLag lag() override { return outbox_->lag(); }

 private:
  std::shared_ptr<ports::Outbox> outbox_;
};

class RelayTest : public ::testing::Test {
 protected:
  RelayTest() { broker.create_topic("orders", 1); }

  void publish(const std::string& payload, const std::string& topic = "orders") {
    const auto session = inbox->open_session();
    session->begin({handler, fence}, {});
    OwnedMessage message;
    message.topic = topic;
    message.key = "k";
    message.payload = payload;
    session->publish(message, MessageId::from(payload));
    session->commit();
  }
  void store_retry(const std::string& payload, std::chrono::milliseconds delay) {
    const auto session = inbox->open_session();
    const ports::InboxEntry entry{.id = MessageId::from(payload), .offset = 0};
    session->begin({handler, fence}, {&entry, 1});
    OwnedMessage message;
    message.topic = "orders";
    message.payload = payload;
    session->write_retries({.taken_back = {},
                            .deferred = {{.id = entry.id, .record = message, .attempts = 1, .delay = delay}},
                            .settled = {}});
    session->commit();
  }
  std::shared_ptr<Relay> relay(const std::string& owner = "one", Relay::Settings settings = {}) {
    settings.owner = owner;
    if (settings.look_every == Relay::Settings{}.look_every) settings.look_every = 5ms;
    auto quiet = std::make_shared<spdlog::logger>("quiet", told);
    auto made = std::make_shared<Relay>(
        settings, outbox,
        [this] {
          ++senders;
          return broker.open_sender();
        },
        std::make_shared<RunLog>(quiet, owner));
    made->start();
    return made;
  }
  std::vector<std::string> sent() {
    std::vector<std::string> payloads;
    for (const auto& record : broker.records("orders")) payloads.push_back(*record.payload);
    return payloads;
  }

  std::shared_ptr<CountingSink> told = std::make_shared<CountingSink>();
  std::shared_ptr<testing::MemoryInbox> inbox = std::make_shared<testing::MemoryInbox>();
  std::shared_ptr<WatchedOutbox> outbox = std::make_shared<WatchedOutbox>(inbox->outbox());
  testing::MemoryBroker broker;
  HandlerId handler = inbox->register_handler("h");
  TopicPartition at{"t", 0};
  Fence fence = inbox->claim_partitions("g", {&at, 1}, 1s).front().fence;
  std::atomic<int> senders{0};
};

TEST_F(RelayTest, sends_in_order_what_was_published_with_its_id) {
  const auto one = relay();
  publish("1");
  publish("2");
  one->ring();
  ASSERT_TRUE(test::eventually([&] { return sent().size() == 2; }));
  EXPECT_THAT(sent(), ElementsAre("1", "2"));
  EXPECT_THAT(broker.records("orders").front().headers, Contains(Header{"message-id", MessageId::from("1").text()}));
  EXPECT_TRUE(test::eventually([&] { return inbox->outbox()->lag().waiting == 0; }));
}

TEST_F(RelayTest, finds_what_others_left_behind) {
  publish("left");
  const auto one = relay();
  EXPECT_TRUE(test::eventually([&] { return sent().size() == 1; }));
}

TEST_F(RelayTest, opens_nothing_while_there_is_nothing_to_send) {
  Relay::Settings quick;
  quick.look_asleep_every = 1ms;
  relay("one", quick)->stop();
  EXPECT_EQ(senders, 0);
  EXPECT_THAT(inbox->outbox()->keep_shards("other", 1s), SizeIs(16));
}

TEST_F(RelayTest, falls_asleep_and_wakes_again) {
  Relay::Settings drowsy;
  drowsy.look_asleep_every = 5ms;
  drowsy.asleep_after = 1ms;
  const auto one = relay("one", drowsy);
  publish("1");
  ASSERT_TRUE(test::eventually([&] { return sent().size() == 1; }));
  ASSERT_TRUE(test::eventually([&] { return !inbox->outbox()->keep_shards("other", 1ms).empty(); }))
      << "asleep, it has no shards";
  publish("2");
  ASSERT_TRUE(test::eventually([&] { return sent().size() == 2; }));
  EXPECT_GE(senders, 2);
}

TEST_F(RelayTest, looks_when_a_stored_retry_is_due) {
  Relay::Settings asleep;
  asleep.look_asleep_every = 1h;
  const auto one = relay("one", asleep);
  // It does not look again for an hour, unless the bell rings.
  ASSERT_TRUE(test::eventually([&] { return outbox->found_none == 1; }));
  store_retry("1", 50ms);
  one->ring_when_due(50ms);
  EXPECT_TRUE(test::eventually([&] { return sent().size() == 1; }));
}

TEST_F(RelayTest, looks_often_while_messages_come_due) {
  Relay::Settings rare;
  rare.look_every = 1h;
  const auto one = relay("one", rare);
  store_retry("1", 0ms);
  one->ring_when_due(0ms);
  ASSERT_TRUE(test::eventually([&] { return sent().size() == 1; }));
  store_retry("2", 0ms);  // by another process, which cannot ring
  EXPECT_TRUE(test::eventually([&] { return sent().size() == 2; }));
}

TEST_F(RelayTest, looks_less_and_less_often_for_what_another_relay_must_send) {
  outbox->others_are_due = true;
  Relay::Settings rare;
  rare.look_every = 1h;
  publish("1");
  const auto began = std::chrono::steady_clock::now();
  const auto one = relay("one", rare);
  ASSERT_TRUE(test::eventually([&] { return outbox->looked_for_due >= 5; }));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 20ms + 40ms + 80ms + 160ms);
}

TEST_F(RelayTest, sends_a_stored_retry_once_while_its_entry_is_locked) {
  outbox->all_are_retries = outbox->locked = true;
  const auto one = relay();
  store_retry("1", 0ms);
  one->ring_when_due(0ms);
  ASSERT_TRUE(test::eventually([&] { return outbox->removals >= 3; }));
  store_retry("2", 0ms);
  ASSERT_TRUE(test::eventually([&] { return sent().size() >= 2; }));
  const int removals = outbox->removals;
  ASSERT_TRUE(test::eventually([&] { return outbox->removals >= removals + 3; }));
  const int found_none = outbox->found_none;
  outbox->locked = false;
  EXPECT_TRUE(test::eventually([&] { return outbox->found_none > found_none; })) << "they are removed in the end";
  EXPECT_THAT(sent(), ElementsAre("1", "2"));
}

TEST_F(RelayTest, sends_a_record_once_while_none_can_be_removed) {
  for (const bool retries : {false, true}) {
    outbox->all_are_retries = retries;
    outbox->busy = true;
    const std::string first = retries ? "3" : "1", second = retries ? "4" : "2";
    const auto sent_before = sent().size();
    const auto one = relay();
    publish(first);
    one->ring();
    int removals = outbox->removals;
    ASSERT_TRUE(test::eventually([&] { return outbox->removals >= removals + 2; }));
    publish(second);
    ASSERT_TRUE(test::eventually([&] { return sent().size() >= sent_before + 2; })) << "the others go on";
    removals = outbox->removals;
    ASSERT_TRUE(test::eventually([&] { return outbox->removals >= removals + 2; }));
    outbox->busy = false;
    EXPECT_TRUE(test::eventually([&] { return inbox->outbox()->lag().waiting == 0; })) << "they are removed in the end";
  }
  EXPECT_THAT(sent(), ElementsAre("1", "2", "3", "4"));
}

TEST_F(RelayTest, sends_another_record_that_has_the_number_of_one_that_it_has_sent) {
  outbox->busy = true;
  const auto one = relay();
  publish("1");
  one->ring();
  ASSERT_TRUE(test::eventually([&] { return outbox->removals >= 2; }));
  outbox->others = true;
  EXPECT_TRUE(test::eventually([&] { return sent().size() >= 2; }));
  outbox->busy = false;
  EXPECT_TRUE(test::eventually([&] { return inbox->outbox()->lag().waiting == 0; }));
  EXPECT_THAT(sent(), ElementsAre("1", "other"));
}

TEST_F(RelayTest, of_two_one_sends) {
  const auto one = relay("one"), two = relay("two");
  for (int i = 0; i < 50; ++i) {
    publish(std::to_string(i));
    one->ring();
    two->ring();
  }
  ASSERT_TRUE(test::eventually([&] { return inbox->outbox()->lag().waiting == 0; }));
  EXPECT_THAT(sent(), SizeIs(50));
}

TEST_F(RelayTest, takes_over_from_one_that_died) {
  ASSERT_THAT(inbox->outbox()->keep_shards("dead", 100ms), SizeIs(16));
  publish("1");
  Relay::Settings impatient;
  impatient.lease = 100ms;
  const auto one = relay("one", impatient);
  EXPECT_TRUE(test::eventually([&] { return sent().size() == 1; }));
}

TEST_F(RelayTest, what_is_refused_is_put_aside_and_the_rest_goes_on) {
  publish("nowhere", "no-such-topic");
  publish("1");
  const auto one = relay();
  ASSERT_TRUE(test::eventually([&] { return sent().size() == 1; }));
  ASSERT_TRUE(test::eventually([&] { return inbox->outbox()->lag().refused == 1; }));
  EXPECT_EQ(inbox->outbox()->lag().waiting, 0);
}

TEST_F(RelayTest, goes_on_when_the_store_comes_back) {
  const auto one = relay();
  publish("1");
  one->ring();
  ASSERT_TRUE(test::eventually([&] { return sent().size() == 1; }));
  inbox->set_unavailable(true);
  ASSERT_TRUE(test::eventually([&] { return told->lines == 1; })) << "it says that it waits";
  inbox->set_unavailable(false);
  publish("2");
  EXPECT_TRUE(test::eventually([&] { return sent().size() == 2; }));
  EXPECT_TRUE(test::eventually([&] { return told->lines == 2; })) << "and that it goes on";
}

TEST_F(RelayTest, sends_what_is_there_before_it_stops_and_gives_its_shards_back) {
  const auto one = relay();
  for (int i = 0; i < 100; ++i) publish(std::to_string(i));
  one->ring();
  one->stop();
  EXPECT_THAT(sent(), SizeIs(100));
  EXPECT_THAT(inbox->outbox()->keep_shards("other", 1s), SizeIs(16));
  one->ring();  // too late, and without effect
}

}  // namespace
}  // namespace turnstile::detail
