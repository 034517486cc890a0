// The contract of the port Broker. The memory twin, librdkafka's mock broker and Apache Kafka must all keep it.

#include <thread>

#include "broker_contract.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST_P(BrokerContract, reads_every_record_of_a_partition_in_order) {
  const auto topic = new_topic(2);
  produce(topic, 0, 300);
  produce(topic, 1, 50);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(350));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(0, 300));
  EXPECT_EQ(offsets_of(reader.read, 1), from_to(0, 50));
}

TEST_P(BrokerContract, takes_at_most_what_is_asked_for_and_goes_on_from_there) {
  const auto topic = new_topic(1);
  produce(topic, 0, 10);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until([&] { return reader.read.size() >= 10; }, 3));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(0, 10));
  EXPECT_EQ(reader.consumer->take({topic, 0}, 3), nullptr);
  EXPECT_EQ(reader.consumer->take({topic, 0}, 0), nullptr);
}

TEST_P(BrokerContract, takes_nothing_from_a_partition_of_somebody_else) {
  const auto topic = new_topic(1);
  produce(topic, 0, 1);
  Reader reader(*broker, {topic});
  EXPECT_EQ(reader.consumer->take({topic, 0}, 10), nullptr) << "before it is assigned";
  ASSERT_TRUE(reader.until_owns(1));
  EXPECT_EQ(reader.consumer->take({topic, 7}, 10), nullptr);
}

TEST_P(BrokerContract, blocks_stay_readable_after_the_consumer_has_gone) {
  const auto topic = new_topic(1);
  produce(topic, 0, 2);
  std::unique_ptr<ports::Block> kept;
  {
    Reader reader(*broker, {topic});
    reader.left_alone = {{topic, 0}};
    ASSERT_TRUE(reader.until([&] { return (kept = reader.consumer->take({topic, 0}, 1)) != nullptr; }));
  }
  EXPECT_EQ(kept->messages().front().text(), "0");
  std::thread([&] { kept.reset(); }).join();
}

TEST_P(BrokerContract, starts_where_the_listener_says) {
  const auto topic = new_topic(2);
  produce(topic, 0, 10);
  produce(topic, 1, 4);
  Reader reader(*broker, {topic});
  reader.starts = {{{topic, 0}, 7}};
  ASSERT_TRUE(reader.until_read(7));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(7, 10));
  EXPECT_EQ(offsets_of(reader.read, 1), from_to(0, 4)) << "the one that the answer does not name";
}

TEST_P(BrokerContract, tells_committed_offsets_also_from_within_the_listener) {
  const auto topic = new_topic(2);
  produce(topic, 0, 5);
  Reader reader(*broker, {topic});
  const std::vector<TopicPartition> asked{{topic, 1}, {topic, 0}};
  std::vector<std::optional<ports::GroupOffset>> within;
  reader.when_assigned = [&](auto) { within = reader.consumer->committed(asked, 10s); };
  ASSERT_TRUE(reader.until_read(5));
  EXPECT_THAT(within, ElementsAre(std::nullopt, std::nullopt));
  reader.commit_all();
  EXPECT_THAT(reader.consumer->committed(asked, 10s), ElementsAre(std::nullopt, ports::GroupOffset{5}));
}

TEST_P(BrokerContract, goes_on_behind_the_committed_offset_after_a_restart) {
  const auto topic = new_topic(1);
  produce(topic, 0, 5);
  {
    Reader first(*broker, {topic});
    ASSERT_TRUE(first.until_read(5));
    first.consumer->commit(std::vector<ports::OffsetCommit>{{{topic, 0}, 3}}, true);
  }
  Reader second(*broker, {topic});
  ASSERT_TRUE(second.until_read(2));
  EXPECT_EQ(offsets_of(second.read, 0), from_to(3, 5));
}

TEST_P(BrokerContract, commits_without_waiting_too) {
  const auto topic = new_topic(1);
  produce(topic, 0, 2);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(2));
  reader.consumer->commit(std::vector<ports::OffsetCommit>{{{topic, 0}, 2}}, false);
  const std::vector<TopicPartition> asked{{topic, 0}};
  EXPECT_TRUE(reader.until([&] { return reader.consumer->committed(asked, 10s).front() == ports::GroupOffset{2}; }));
}

TEST_P(BrokerContract, tells_what_became_of_each_commit) {
  const auto topic = new_topic(1);
  produce(topic, 0, 3);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(3));
  for (const bool wait : {true, false}) {
    const TopicPartitionOffset offset{{topic, 0}, wait ? 2 : 3};
    const ports::OffsetCommit commit{offset.at, offset.offset};
    reader.consumer->commit({&commit, 1}, wait);
    EXPECT_TRUE(!wait || reader.commits.size() == 1U) << "it has waited for the answer";
    ASSERT_TRUE(reader.until([&] { return !reader.commits.empty(); }));
    EXPECT_EQ(reader.commits.front().first, offset);
    EXPECT_TRUE(reader.commits.front().second);
    reader.commits.clear();
  }
}

TEST_P(BrokerContract, keeps_the_metadata_of_each_committed_offset) {
  const auto topic = new_topic(2);
  produce(topic, 0, 3);
  produce(topic, 1, 3);
  const std::string text = "turnstile:0@0,1@800 é";
  {
    Reader first(*broker, {topic});
    ASSERT_TRUE(first.until_read(6));
    first.consumer->commit(std::vector<ports::OffsetCommit>{{{topic, 0}, 1, "one"}, {{topic, 1}, 2, text}}, true);
  }
  Reader second(*broker, {topic});
  ASSERT_TRUE(second.until_owns(2));
  const std::vector<TopicPartition> asked{{topic, 1}, {topic, 0}};
  EXPECT_THAT(second.consumer->committed(asked, 10s),
              ElementsAre(ports::GroupOffset{2, text}, ports::GroupOffset{1, "one"}));
  second.consumer->commit(std::vector<ports::OffsetCommit>{{{topic, 0}, 2}}, true);
  EXPECT_EQ(second.consumer->committed({asked.data() + 1, 1}, 10s).front(), ports::GroupOffset{2})
      << "a commit without metadata";
}

TEST_P(BrokerContract, says_how_far_it_has_read_once_it_is_at_the_end) {
  const auto topic = new_topic(1);
  Reader reader(*broker, {topic});
  const TopicPartition at{topic, 0};
  EXPECT_EQ(reader.consumer->read_up_to(at), std::nullopt) << "it is not ours yet";
  ASSERT_TRUE(reader.until([&] { return reader.consumer->read_up_to(at) == 0; })) << "nothing is there";
  produce(topic, 0, 5);
  ASSERT_TRUE(reader.until([&] { return reader.consumer->read_up_to(at) == 5; }));
  EXPECT_EQ(reader.read.size(), 5U) << "said behind the records, not before them";
}

/// Its partitions may stay assigned; the group's offsets are deleted with it.
TEST_P(BrokerContract, tells_of_a_topic_that_is_deleted_and_of_another_one_of_its_name) {
  const auto topic = new_topic(1);
  const auto other = new_topic(1);
  produce(topic, 0, 5);
  Reader reader(*broker, {topic, other});
  ASSERT_TRUE(reader.until_read(5));
  reader.commit_all();
  if (!world->delete_topic(topic)) GTEST_SKIP() << "the mock broker deletes no topics";
  ASSERT_TRUE(reader.until([&] { return !reader.topic_changes.empty(); }));
  EXPECT_EQ(reader.topic_changes.front(), std::pair(topic, false));
  produce(other, 0, 2);
  ASSERT_TRUE(reader.until_read(7)) << "the other topic goes on";
  world->create_topic(topic, 1);
  ASSERT_TRUE(reader.until([&] { return reader.topic_changes.size() == 2; }));
  EXPECT_EQ(reader.topic_changes.back(), std::pair(topic, true));
  const TopicPartition at{topic, 0};
  EXPECT_EQ(reader.consumer->committed({&at, 1}, 10s).front(), std::nullopt);
  const auto fresh = world->broker(group)->open_producer();  // the old one may have cached that there was no such topic
  for (int i = 0; i < 3; ++i) fresh->send(text(topic, 0, "new"));
  ASSERT_TRUE(reader.until_read(10));
  EXPECT_EQ(reader.read.back().offset, 2);
}

TEST_P(BrokerContract, seeks_back_and_forth) {
  const auto topic = new_topic(1);
  produce(topic, 0, 20);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(20));
  reader.read.clear();
  reader.consumer->seek({{topic, 0}, 5});
  ASSERT_TRUE(reader.until_read(15));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(5, 20));
  reader.read.clear();
  reader.consumer->seek({{topic, 0}, 2});
  reader.consumer->seek({{topic, 0}, 18});
  ASSERT_TRUE(reader.until_read(2));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(18, 20));
}

TEST_P(BrokerContract, wake_ends_a_waiting_poll) {
  const auto topic = new_topic(1);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_owns(1));
  reader.step(1, 0ms);
  const auto before = std::chrono::steady_clock::now();
  std::thread other([&] { reader.consumer->wake(); });
  reader.consumer->poll(20s);
  other.join();
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
}

TEST_P(BrokerContract, a_record_that_comes_ends_a_waiting_poll) {
  const auto topic = new_topic(1);
  Reader reader(*broker, {topic});
  produce(topic, 0, 1);
  ASSERT_TRUE(reader.until_read(1));
  const auto before = std::chrono::steady_clock::now();
  std::thread other([&] { produce(topic, 0, 1); });
  std::unique_ptr<ports::Block> block;
  while (!block && std::chrono::steady_clock::now() - before < 20s) {
    reader.consumer->poll(20s);
    block = reader.consumer->take({topic, 0}, 10);
  }
  other.join();
  ASSERT_TRUE(block);
  EXPECT_LT(std::chrono::steady_clock::now() - before, 10s);
}

// Hazard: paused-partition: backpressure means that records stay where they are.
TEST_P(BrokerContract, a_partition_that_is_left_alone_holds_up_no_other) {
  const auto topic = new_topic(2);
  produce(topic, 0, 200);
  produce(topic, 1, 200);
  Reader reader(*broker, {topic});
  reader.left_alone = {{topic, 0}};
  ASSERT_TRUE(reader.until_read(200));
  EXPECT_THAT(offsets_of(reader.read, 0), IsEmpty());
  produce(topic, 1, 50);
  ASSERT_TRUE(reader.until_read(250));
  reader.left_alone.clear();
  reader.consumer->wake();
  ASSERT_TRUE(reader.until_read(450));
  EXPECT_EQ(offsets_of(reader.read, 0), from_to(0, 200));
  EXPECT_EQ(offsets_of(reader.read, 1), from_to(0, 250));
}

TEST_P(BrokerContract, a_poll_that_nobody_needs_waits_its_time) {
  const auto topic = new_topic(1);
  produce(topic, 0, 100);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(1));
  reader.left_alone = {{topic, 0}};
  int polls = 0;
  const auto before = std::chrono::steady_clock::now();
  for (; std::chrono::steady_clock::now() - before < 1s; ++polls) reader.step(1, 100ms);
  EXPECT_LE(polls, 30) << "records that are left on purpose must not keep poll() busy";
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Brokers, BrokerContract,
                         ::testing::Values(BrokerKind{"memory", memory_world}, BrokerKind{"mock", mock_world},
                                           BrokerKind{"kafka", kafka_world}),
                         [](const auto& kind) { return std::string(kind.param.name); });

}  // namespace turnstile::test
