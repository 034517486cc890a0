// The contract of the port Broker: members join and leave.

#include <algorithm>

#include "broker_contract.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

// One thread polls both members in turn, because a real member polls while the other one does.
bool both_until(Reader& a, Reader& b, const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + 40s;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    a.step(100, 20ms);
    b.step(100, 20ms);
  }
  return true;
}

TEST_P(BrokerContract, two_members_share_and_the_one_that_stays_takes_over) {
  const auto topic = new_topic(4);
  Reader first(*broker, {topic});
  ASSERT_TRUE(first.until_owns(4));
  auto second = std::make_unique<Reader>(*broker, std::vector{topic});
  ASSERT_TRUE(both_until(first, *second, [&] { return first.owned.size() == 2 && second->owned.size() == 2; }));
  std::vector<TopicPartition> both;
  std::set_intersection(first.owned.begin(), first.owned.end(), second->owned.begin(), second->owned.end(),
                        std::back_inserter(both));
  EXPECT_TRUE(both.empty());
  second->consumer->close();
  EXPECT_EQ(second->revocations, 1) << "close() tells the listener";
  EXPECT_TRUE(second->owned.empty());
  EXPECT_TRUE(first.until_owns(4));
}

TEST_P(BrokerContract, a_member_may_commit_while_its_partitions_are_taken_away) {
  if (is("mock")) GTEST_SKIP() << "librdkafka's mock broker refuses commits while a rebalance goes on";
  const auto topic = new_topic(2);
  produce(topic, 0, 3);
  produce(topic, 1, 3);
  Reader first(*broker, {topic});
  ASSERT_TRUE(first.until_read(6));
  first.when_revoked = [&](auto, bool lost) {
    EXPECT_FALSE(lost);
    first.commit_all();
  };
  Reader second(*broker, {topic});
  ASSERT_TRUE(both_until(first, second, [&] { return first.owned.size() == 1 && second.owned.size() == 1; }));
  produce(topic, 0, 1);
  produce(topic, 1, 1);
  ASSERT_TRUE(both_until(first, second, [&] { return first.read.size() + second.read.size() >= 8; }));
  EXPECT_EQ(second.read.size(), 1u) << "what the first had committed does not come again";
}

// Hazard: skipped-offsets, repeated-offsets: the records of an ownership come in order and without gaps over any
// rebalances, from the group's offset.
TEST_P(BrokerContract, records_come_in_order_and_without_gaps_over_rebalances) {
  const auto topic = new_topic(2);
  constexpr int records = 400;
  struct Check {
    explicit Check(Reader& of) : reader(of) {
      reader.when_assigned = [this](auto partitions) {
        for (const auto& at : partitions) {
          const auto committed = reader.consumer->committed(std::vector<TopicPartition>{at}, 10s).front();
          expected[at] = committed ? committed->offset : 0;
        }
      };
      reader.when_revoked = [this](auto, bool lost) {
        if (!lost) reader.commit_all();
        check();
        reader.next.clear();
      };
    }
    void check() {
      for (const auto& record : reader.read) {
        const TopicPartition at{record.topic, record.partition};
        EXPECT_EQ(record.offset, expected[at]) << to_string(at);
        expected[at] = record.offset + 1;
        seen.insert({record.partition, record.offset});
      }
      reader.read.clear();
    }
    Reader& reader;
    std::map<TopicPartition, Offset> expected;
    std::set<std::pair<std::int32_t, Offset>> seen;
  };

  Reader first(*broker, {topic});
  Check first_check(first);
  ASSERT_TRUE(first.until_owns(2));
  std::set<std::pair<std::int32_t, Offset>> by_others;
  for (int round = 0; round < 2; ++round) {
    Reader other(*broker, {topic});
    Check other_check(other);
    produce(topic, 0, records / 4);
    produce(topic, 1, records / 4);
    ASSERT_TRUE(both_until(first, other, [&] { return first.owned.size() == 1 && other.owned.size() == 1; }));
    other.step(7, 20ms);
    other.consumer->close();
    other_check.check();
    by_others.merge(other_check.seen);
    ASSERT_TRUE(first.until_owns(2));
  }
  ASSERT_TRUE(first.until([&] {
    first_check.check();
    auto all = first_check.seen;
    all.merge(std::set(by_others));
    return all.size() == records;
  })) << "every record was read by somebody";
}

TEST_P(BrokerContract, groups_read_without_knowing_of_each_other) {
  const auto topic = new_topic(1);
  produce(topic, 0, 5);
  const auto elsewhere = world->broker(fresh_name("other-group"));
  Reader here(*broker, {topic});
  Reader there(*elsewhere, {topic});
  ASSERT_TRUE(both_until(here, there, [&] { return here.read.size() >= 5 && there.read.size() >= 5; }));
  here.commit_all();
  const std::vector<TopicPartition> asked{{topic, 0}};
  EXPECT_EQ(here.consumer->committed(asked, 10s).front(), ports::GroupOffset{5});
  EXPECT_EQ(there.consumer->committed(asked, 10s).front(), std::nullopt);
}

// Hazard: revoked-partition.
TEST_P(BrokerContract, a_commit_that_the_group_does_not_accept_is_no_error) {
  const auto topic = new_topic(1);
  produce(topic, 0, 3);
  Reader owner(*broker, {topic});
  ASSERT_TRUE(owner.until_read(3));
  owner.commit_all();
  Reader newcomer(*broker, {topic});
  const std::vector<ports::OffsetCommit> not_mine{{{topic, 0}, 1}};
  EXPECT_NO_THROW(newcomer.consumer->commit(not_mine, true));
  EXPECT_NO_THROW(newcomer.consumer->commit(not_mine, false));
  EXPECT_NO_THROW(newcomer.step());
}

TEST_P(BrokerContract, closing_twice_or_before_anything_was_assigned_is_fine) {
  const auto topic = new_topic(1);
  Reader reader(*broker, {topic});
  reader.consumer->close();
  reader.consumer->close();
  EXPECT_EQ(reader.revocations, 0);
}

TEST_P(BrokerContract, a_member_of_two_topics_reads_both) {
  const auto one = new_topic(1);
  const auto other = new_topic(2);
  produce(one, 0, 2);
  produce(other, 1, 2);
  Reader reader(*broker, {one, other});
  ASSERT_TRUE(reader.until_read(4));
  EXPECT_EQ(reader.owned.size(), 3u);
}

}  // namespace
}  // namespace turnstile::test
