// Offsets without records at the end of an idle partition: the group commits them, and never more.

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>

#include "gap_reader.hpp"
#include "tests/support/delete_records.hpp"
#include "tests/support/running.hpp"
#include "tests/support/transactional_producer.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class IdlePartitions : public ::testing::Test {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world = std::make_unique<World>(1);
  }

  /// Without the store, the group's offset is all that is known of the partition.
  std::unique_ptr<Running> consumer(const std::string& reset = "earliest") {
    Config config = world->config();
    config.kafka["auto.offset.reset"] = reset;
    return std::make_unique<Running>(std::move(config), [this](Consumer& app) {
      app.topic(world->topic(), [this](const Message&, Context&) { ++ran; });
    });
  }
  /// The group's, as an earlier owner or an operator left it.
  void set_offset(Offset offset) const {
    const auto reader = world->broker().open_consumer();
    struct Nothing final : ports::AssignmentListener {
      std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> of) override {
        assigned = of.size();
        return {};
      }
      void on_revoked(std::span<const TopicPartition>, bool) override {}
      std::size_t assigned = 0;
    } listener;
    reader->subscribe({world->topic()}, listener);
    ASSERT_TRUE(eventually([&] {
      reader->poll(20ms);
      return listener.assigned == 1;
    }));
    reader->commit(std::vector<ports::OffsetCommit>{{{world->topic(), 0}, offset}}, true);
    reader->close();
  }
  bool commits(Offset offset) {
    return eventually([&] { return world->committed(0) == offset; }, 30s);
  }

  std::unique_ptr<World> world;
  std::atomic<int> ran{0};
};

TEST_F(IdlePartitions, are_committed_behind_the_marker_of_a_transaction) {
  TransactionalProducer producer(world->topic());
  producer.write(3);
  const auto app = consumer();
  EXPECT_TRUE(commits(4)) << world->committed(0) << app->log_text();
  EXPECT_EQ(ran, 3);
}

TEST_F(IdlePartitions, are_committed_behind_an_aborted_transaction) {
  TransactionalProducer producer(world->topic());
  producer.begin();
  producer.send(2);
  producer.abort();
  const auto app = consumer();
  EXPECT_TRUE(commits(3)) << world->committed(0) << app->log_text();
  producer.write(1);
  EXPECT_TRUE(commits(5)) << world->committed(0) << app->log_text();
  EXPECT_EQ(ran, 1);
}

TEST_F(IdlePartitions, are_not_committed_beyond_a_transaction_that_is_open) {
  TransactionalProducer producer(world->topic());
  producer.write(1);
  producer.begin();
  producer.send(5);
  {
    const auto app = consumer();
    EXPECT_TRUE(commits(2)) << world->committed(0) << app->log_text();
    EXPECT_EQ(ran, 1);
  }
  EXPECT_EQ(world->committed(0), 2);
  const auto app = consumer();
  world->publish("behind", "behind");  // it cannot be read before the transaction ends
  producer.commit();
  EXPECT_TRUE(commits(9)) << world->committed(0) << app->log_text();
  EXPECT_EQ(ran, 7);
}

TEST_F(IdlePartitions, are_committed_behind_a_marker_that_an_earlier_owner_had_not_passed) {
  TransactionalProducer producer(world->topic());
  producer.write(3);
  set_offset(3);
  ASSERT_EQ(world->committed(0), 3);
  const auto app = consumer();
  EXPECT_TRUE(commits(4)) << world->committed(0) << app->log_text();
  EXPECT_EQ(ran, 0);
}

TEST_F(IdlePartitions, have_no_gap_where_a_record_follows) {
  TransactionalProducer producer(world->topic());
  for (int i = 0; i < 2; ++i) producer.write(1);  // records 0 and 2, markers 1 and 3
  const TopicPartition at{world->topic(), 0};
  kafka::GapReader reader({{"bootstrap.servers", kafka_servers()}});
  const auto gaps_from = [&](Offset from) {
    reader.ask(at, from);
    EXPECT_EQ(reader.being_read(), 1U);
    std::vector<std::pair<Offset, Offset>> gaps;
    EXPECT_TRUE(eventually([&] {
      for (const auto& gap : reader.found()) gaps.emplace_back(gap.from, gap.to);
      return reader.being_read() == 0;
    }));
    return gaps;
  };
  using Gaps = std::vector<std::pair<Offset, Offset>>;
  EXPECT_EQ(gaps_from(1), Gaps{}) << "record 2 follows";
  EXPECT_EQ(gaps_from(3), (Gaps{{3, 4}}));
  EXPECT_EQ(gaps_from(4), Gaps{}) << "the end";
  EXPECT_EQ(gaps_from(9), Gaps{}) << "behind the end";
  EXPECT_EQ(gaps_from(1), Gaps{}) << "a second time";
}

/// A consumer that starts again would otherwise begin at the end again, and skip what came meanwhile.
TEST_F(IdlePartitions, without_an_offset_of_the_group_are_committed_where_reading_begins) {
  world->publish(5);
  {
    const auto app = consumer("latest");
    const auto records = world->broker().open_consumer()->ends({{{world->topic(), 0}}}, 10s).front();
    ASSERT_TRUE(records && records->last > 0);
    EXPECT_TRUE(commits(records->last)) << world->committed(0) << app->log_text();
  }
  world->publish("later", "later");
  const auto app = consumer("latest");
  EXPECT_TRUE(eventually([&] { return ran == 1; })) << app->log_text();
}

/// As on a machine that has no threads or descriptors left.
TEST_F(IdlePartitions, are_left_as_they_are_if_no_client_can_be_opened) {
  kafka::GapReader reader(
      {{"bootstrap.servers", kafka_servers()}, {"security.protocol", "ssl"}, {"ssl.ca.location", "/missing/ca.pem"}});
  EXPECT_FALSE(reader.ask({world->topic(), 0}, 0));
  EXPECT_EQ(reader.being_read(), 0U);
  EXPECT_TRUE(reader.found().empty());
}

/// Otherwise the group would keep an offset that is not in the log, and with "latest" skip what comes while no consumer
/// runs.
TEST_F(IdlePartitions, are_committed_where_they_are_read_if_the_groups_offset_is_not_in_the_log) {
  for (const std::string reset : {"earliest", "latest"}) {
    for (const Offset offset : {100, 2}) {  // behind the end, and below the first record
      world = std::make_unique<World>(1);
      world->publish(10);
      const auto end = world->broker().open_consumer()->log_ends({{{world->topic(), 0}}}, 10s).front().value_or(0);
      ASSERT_GT(end, 5);
      delete_before(world->topic(), 0, end);
      set_offset(offset);
      ASSERT_EQ(world->committed(0), offset);
      {
        const auto app = consumer(reset);
        EXPECT_TRUE(commits(end)) << reset << offset << " " << world->committed(0) << app->log_text();
      }
      ran = 0;
      world->publish("later", "later");
      const auto app = consumer(reset);
      EXPECT_TRUE(eventually([&] { return ran == 1; })) << reset << offset << app->log_text();
    }
  }
}

/// More partitions than are read at once, and those of open transactions are read again and again.
TEST_F(IdlePartitions, are_all_committed_while_transactions_are_open_in_many_others) {
  constexpr int kOpen = 80;
  world = std::make_unique<World>(2 * kOpen);
  TransactionalProducer done(world->topic()), open(world->topic() + "2", world->topic());
  done.begin();
  for (int p = 0; p < 2 * kOpen; ++p) done.send(1, p);
  done.commit();
  open.begin();
  for (int p = 0; p < kOpen; ++p) open.send(1, p);
  const auto app = consumer();
  const auto committed = [&] {
    int count = 0;
    std::vector<TopicPartition> all;
    for (int p = 0; p < 2 * kOpen; ++p) all.push_back({world->topic(), p});
    for (const auto& offset : world->broker().open_consumer()->committed(all, 10s))
      count += offset && offset->offset == 2 ? 1 : 0;
    return count;
  };
  EXPECT_TRUE(eventually([&] { return committed() == 2 * kOpen; }, 60s)) << committed();
  open.abort();
}

}  // namespace
}  // namespace turnstile::test
