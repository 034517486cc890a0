// The contract of the port Broker: the contents of a record, the guarantees of a producer, and the description of a
// topic.

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <thread>

#include "broker_contract.hpp"
#include "turnstile/ports/record_not_stored.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

TEST_P(BrokerContract, tells_null_and_empty_apart) {
  const auto topic = new_topic(1);
  OwnedMessage record = text(topic, 0, "");
  record.key = "";
  producer().send(record);
  record.key.reset();
  record.payload.reset();
  producer().send(record);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(2));
  EXPECT_EQ(reader.read[0].key, "");
  EXPECT_EQ(reader.read[0].payload, "");
  EXPECT_EQ(reader.read[1].key, std::nullopt);
  EXPECT_EQ(reader.read[1].payload, std::nullopt);
}

TEST_P(BrokerContract, a_topic_that_was_missing_takes_records_as_soon_as_it_is_there) {
  if (is("mock")) GTEST_SKIP() << "librdkafka's mock broker makes every topic that is asked for";
  const auto topic = fresh_name("late");
  const OwnedMessage record = text(topic, 0, "x");
  const auto sender = broker->open_sender();
  // Both wait for the topic for a while, and then cache that it does not exist.
  auto refused = std::async(std::launch::async, [&] { return sender->send({&record, 1}).at(0); });
  EXPECT_THROW(producer().send(record), ports::RecordNotStored);
  EXPECT_EQ(refused.get().kind, ports::BrokerSender::Fate::Kind::refused);

  world->create_topic(topic, 1);
  const auto fate = sender->send({&record, 1}).at(0);
  EXPECT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent) << fate.why;
  EXPECT_NO_THROW(producer().send(record));
}

TEST_P(BrokerContract, carries_keys_payloads_and_timestamps_as_they_are) {
  const auto topic = new_topic(1);
  OwnedMessage record = text(topic, 0, std::string("a\0b\xff", 4));
  record.key = std::string("\0", 1);
  record.timestamp = Timestamp{1'700'000'000'123ms};
  producer().send(record);
  record.timestamp = Timestamp{};
  producer().send(record);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(2));
  EXPECT_EQ(reader.read[0].key, record.key);
  EXPECT_EQ(reader.read[0].payload, record.payload);
  EXPECT_EQ(reader.read[0].timestamp, Timestamp{1'700'000'000'123ms});
  EXPECT_GT(reader.read[1].timestamp, Timestamp{1'700'000'000'123ms}) << "none given: the time of sending";
}

TEST_P(BrokerContract, lets_several_threads_read_the_headers_of_a_record_at_once) {
  constexpr std::size_t kRecords = 1'000, kThreads = 2;
  const auto topic = new_topic(1);
  std::vector<OwnedMessage> records(kRecords, text(topic, 0, "x"));
  for (auto& record : records) record.headers = {{"other", "o"}, {"id", "the id"}};
  for (const auto& fate : broker->open_sender()->send(records))
    ASSERT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent);
  Reader reader(*broker, {topic});
  reader.left_alone = {{topic, 0}};
  std::vector<std::unique_ptr<ports::Block>> blocks;
  std::vector<Message> messages;
  ASSERT_TRUE(reader.until([&] {
    while (auto block = reader.consumer->take({topic, 0}, kRecords)) {
      messages.insert(messages.end(), block->messages().begin(), block->messages().end());
      blocks.push_back(std::move(block));
    }
    return messages.size() == kRecords;
  }));
  std::array<std::vector<const char*>, kThreads> read;
  std::atomic<std::size_t> arrived{0};
  std::vector<std::thread> threads;
  for (auto& mine : read) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < messages.size(); ++i) {
        ++arrived;
        while (arrived < kThreads * (i + 1)) std::this_thread::yield();
        mine.push_back(messages[i].header("id").value_or("").data());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& mine : read) EXPECT_EQ(mine, read.front()) << "headers that were parsed twice leak";
}

TEST_P(BrokerContract, keeps_headers_in_order_repeated_null_and_binary) {
  const auto topic = new_topic(1);
  OwnedMessage record = text(topic, 0, "x");
  record.headers = {{"id", "first"}, {"none", std::nullopt}, {"empty", ""}, {"id", std::string("\0\xfe", 2)}};
  producer().send(record);
  producer().send(text(topic, 0, "without"));
  Reader reader(*broker, {topic});
  reader.left_alone = {{topic, 0}};
  std::unique_ptr<ports::Block> block;
  ASSERT_TRUE(reader.until([&] { return block || (block = reader.consumer->take({topic, 0}, 1)); }));
  const auto& message = block->messages().front();
  EXPECT_EQ(message.own().headers, record.headers);
  EXPECT_EQ(message.find("id").count, 2);
  EXPECT_EQ(message.header("id"), std::string_view("\0\xfe", 2)) << "the last one wins";
  EXPECT_EQ(message.find("none").count, 1);
  EXPECT_EQ(message.header("none"), std::nullopt);
  EXPECT_EQ(message.header("empty"), "");
  EXPECT_EQ(message.find("missing").count, 0);
  block.reset();
  ASSERT_TRUE(reader.until([&] { return (block = reader.consumer->take({topic, 0}, 1)) != nullptr; }));
  EXPECT_TRUE(block->messages().front().headers().empty());
}

TEST_P(BrokerContract, keeps_headers_of_records_of_any_size_apart) {
  const auto topic = new_topic(1);
  std::vector<OwnedMessage> sent;
  for (const std::size_t size : {0U, 1U, 63U, 64U, 8'191U, 8'192U, 70'000U})
    for (const int headers : {0, 1, 100}) {
      sent.push_back(text(topic, 0, std::string(size, '\0')));
      sent.back().headers.assign(static_cast<std::size_t>(headers), {"a", "1"});
    }
  for (const auto& fate : broker->open_sender()->send(sent))
    ASSERT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(sent.size()));
  for (std::size_t i = 0; i < sent.size(); ++i) EXPECT_EQ(reader.read[i].headers, sent[i].headers) << i;
}

TEST_P(BrokerContract, carries_a_record_of_nearly_a_megabyte) {
  const auto topic = new_topic(1);
  const std::string large(1'000'000, 'z');  // with its frame still below the usual message.max.bytes of 1 MiB
  producer().send(text(topic, 0, large));
  producer().send(text(topic, 0, "small"));
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(2));
  EXPECT_TRUE(reader.read[0].payload == large);
  EXPECT_EQ(reader.read[1].payload, "small");
}

TEST_P(BrokerContract, acknowledges_with_partition_and_offset) {
  const auto topic = new_topic(3);
  const auto first = producer().send(text(topic, 2, "a"));
  const auto second = producer().send(text(topic, 2, "b"));
  EXPECT_EQ(first.partition, 2);
  EXPECT_EQ(second.offset, first.offset + 1);
  OwnedMessage keyed = text(topic, -1, "c");
  keyed.key = "same";
  const auto here = producer().send(keyed).partition;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(producer().send(keyed).partition, here);
}

TEST_P(BrokerContract, sends_from_several_threads_at_once) {
  const auto topic = new_topic(1);
  constexpr int senders = 8;
  constexpr int each = 25;
  auto& shared = producer();
  std::vector<std::thread> threads;
  for (int t = 0; t < senders; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) shared.send(text(topic, 0, std::to_string(t * each + i)));
    });
  }
  for (auto& thread : threads) thread.join();
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(senders * each));
  std::set<std::string> payloads;
  for (const auto& record : reader.read) payloads.insert(*record.payload);
  EXPECT_EQ(payloads.size(), static_cast<std::size_t>(senders * each));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(0, senders * each));
}

TEST_P(BrokerContract, a_refused_record_names_its_topic_and_the_producer_goes_on) {
  const auto refused = world->refused_topic();
  try {
    producer().send(text(refused, 0, "x"));
    ADD_FAILURE() << "it was not refused";
  } catch (const ports::RecordNotStored& error) {
    EXPECT_THAT(error.what(), HasSubstr(refused));
  }
  if (is("mock")) return;  // it refuses all topics alike
  const auto topic = new_topic(1);
  EXPECT_EQ(producer().send(text(topic, 0, "y")).offset, 0);
}

TEST_P(BrokerContract, describes_a_topic_or_says_that_there_is_none) {
  const auto topic = new_topic(3);
  const auto info = broker->describe(topic, 10s);
  ASSERT_TRUE(info);
  EXPECT_EQ(info->partitions, 3);
  EXPECT_FALSE(broker->describe(fresh_name("missing"), 10s));
}

TEST_P(BrokerContract, tells_the_bounds_of_partitions_of_which_one_does_not_exist) {
  const auto topic = new_topic(2);
  produce(topic, 0, 4);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_owns(2));
  const std::vector<TopicPartition> asked{{topic, 1}, {topic, 7}, {topic, 0}};
  EXPECT_THAT(reader.consumer->bounds(asked, 10s),
              ::testing::ElementsAre(std::pair(Offset{0}, Offset{0}), std::nullopt, std::pair(Offset{0}, Offset{4})));
}

TEST_P(BrokerContract, tells_where_partitions_end_of_which_one_does_not_exist) {
  const auto topic = new_topic(2);
  produce(topic, 0, 4);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_owns(2));
  const std::vector<TopicPartition> asked{{topic, 1}, {topic, 7}, {topic, 0}};
  using End = ports::PartitionEnd;
  EXPECT_THAT(reader.consumer->ends(asked, 10s),
              ::testing::ElementsAre(End{.readable = 0, .last = 0}, std::nullopt, End{.readable = 4, .last = 4}));
  EXPECT_THAT(reader.consumer->log_ends(asked, 10s),
              ::testing::ElementsAre(std::optional<Offset>(0), std::nullopt, std::optional<Offset>(4)));
  produce(topic, 0, 1);
  EXPECT_THAT(reader.consumer->ends({{{topic, 0}}}, 10s), ::testing::ElementsAre(End{.readable = 5, .last = 5}));
  EXPECT_THAT(reader.consumer->log_ends({{{topic, 0}}}, 10s), ::testing::ElementsAre(std::optional<Offset>(5)));
  EXPECT_THAT(reader.consumer->why_no_end({{{topic, 7}, {topic, 0}}}, 10s),
              ::testing::ElementsAre("", ::testing::HasSubstr(", which leads it, does not answer")));
}

}  // namespace
}  // namespace turnstile::test
