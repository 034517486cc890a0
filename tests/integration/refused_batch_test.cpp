// A broker refuses a batch as a whole, and may accept the next one of the partition. The order of a key stays
// (hazard: refused-batch).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "tests/support/topic_reader.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using FateKind = ports::BrokerSender::Fate::Kind;

/// More than two batches.
constexpr int kRecords = 3'000;

kafka::Settings servers(const std::map<std::string, std::string>& more = {}) {
  kafka::Settings settings{{"bootstrap.servers", kafka_servers()}};
  settings.insert(more.begin(), more.end());
  return settings;
}

std::string new_topic(const std::string& setting, const std::string& value, int partitions = 1) {
  static int count = 0;
  const std::string name = "refusing-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
  kafka::create_topic(servers(), {name, partitions, 1, {{setting, value}}});
  return name;
}

OwnedMessage record_of(const std::string& topic, int number, std::size_t bytes = 1'000) {
  OwnedMessage record;
  record.topic = topic;
  record.partition = -1;
  record.key = "k";
  record.payload = std::to_string(number) + ":";
  record.payload->append(bytes, 'x');
  return record;
}

std::vector<OwnedMessage> many(const std::string& topic, int count = kRecords) {
  std::vector<OwnedMessage> records;
  for (int i = 0; i < count; ++i) records.push_back(record_of(topic, i));
  return records;
}

/// Sends the records. Those with the numbers `bad` must be refused, and all others must arrive once and in order.
void expect_order(const std::vector<OwnedMessage>& records, const std::set<std::size_t>& bad,
                  const kafka::Settings& settings = servers()) {
  const auto sender = kafka::open_broker(settings, nullptr)->open_sender();
  const auto fates = sender->send(records);
  ASSERT_EQ(fates.size(), records.size());
  std::map<std::string, std::vector<std::string>> wanted;
  for (std::size_t i = 0; i < fates.size(); ++i) {
    ASSERT_EQ(fates[i].kind, bad.contains(i) ? FateKind::refused : FateKind::sent) << i << ": " << fates[i].why;
    if (!bad.contains(i)) wanted[records[i].topic].push_back(*records[i].payload);
  }
  for (const auto& [topic, payloads] : wanted) {
    TopicReader reader(topic);
    ASSERT_TRUE(reader.until([&, count = payloads.size()] { return reader.read.size() >= count; }));
    std::vector<std::string> arrived;
    for (const auto& record : reader.read) arrived.push_back(*record.payload);
    EXPECT_EQ(arrived, payloads) << topic;
  }
}

class RefusedBatch : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  }
};

TEST_F(RefusedBatch, with_records_that_are_too_large_for_the_topic) {
  const auto topic = new_topic("max.message.bytes", "100000");
  auto records = many(topic);
  for (const int i : {50, 51, 1'500, kRecords - 1}) records[static_cast<std::size_t>(i)] = record_of(topic, i, 150'000);
  expect_order(records, {50, 51, 1'500, kRecords - 1});
}

TEST_F(RefusedBatch, with_the_first_record_that_the_producer_sends) {
  const auto topic = new_topic("max.message.bytes", "100000");
  auto records = many(topic);
  records.front() = record_of(topic, 0, 150'000);
  expect_order(records, {0});
}

TEST_F(RefusedBatch, with_a_record_that_has_no_key_in_a_compacted_topic) {
  const auto topic = new_topic("cleanup.policy", "compact");
  auto records = many(topic);
  for (const std::size_t i : {100U, 2'000U}) records[i].key.reset();
  expect_order(records, {100, 2'000});
}

TEST_F(RefusedBatch, because_the_batch_is_too_large_and_no_record_is) {
  expect_order(many(new_topic("max.message.bytes", "20000")), {});
}

TEST_F(RefusedBatch, of_records_that_are_all_refused) {
  const auto topic = new_topic("max.message.bytes", "10000");
  std::vector<OwnedMessage> records;
  std::set<std::size_t> all;
  for (int i = 0; i < 100; ++i) {
    records.push_back(record_of(topic, i, 15'000));
    all.insert(all.end(), static_cast<std::size_t>(i));
  }
  records.push_back(record_of(topic, 100));
  expect_order(records, all);
}

TEST_F(RefusedBatch, among_records_of_other_topics) {
  const auto refusing = new_topic("max.message.bytes", "30000"), other = new_topic("max.message.bytes", "4000000");
  std::vector<OwnedMessage> records;
  for (int i = 0; i < kRecords; ++i) records.push_back(record_of(i % 2 == 0 ? refusing : other, i));
  for (const int i : {0, 1'000}) records[static_cast<std::size_t>(i)] = record_of(refusing, i, 40'000);
  expect_order(records, {0, 1'000});
}

// Each 2,000 records, of which no two have one key, are more than a batch, and are sent at once.
TEST_F(RefusedBatch, among_records_of_many_keys) {
  const auto topic = new_topic("cleanup.policy", "compact", 2);
  auto records = many(topic, 6'000);
  for (std::size_t i = 0; i < records.size(); ++i) records[i].key = std::to_string(i % 2'000);
  for (const std::size_t i : {100U, 1'999U, 3'500U}) records[i].key.reset();
  const auto fates = kafka::open_broker(servers(), nullptr)->open_sender()->send(records);
  for (std::size_t i = 0; i < fates.size(); ++i)
    ASSERT_EQ(fates[i].kind, records[i].key ? FateKind::sent : FateKind::refused) << i << ": " << fates[i].why;
  TopicReader reader(topic);
  ASSERT_TRUE(reader.until([&] { return reader.read.size() >= records.size() - 3; }));
  std::map<std::string, int> last;
  for (const auto& record : reader.read) {
    const int number = std::stoi(*record.payload);
    const auto [at, is_first] = last.emplace(*record.key, number);
    EXPECT_TRUE(is_first || at->second < number) << number;
    at->second = number;
  }
  EXPECT_EQ(reader.read.size(), records.size() - 3);
}

// In particular, a full queue of librdkafka must not end in a second batch.
TEST_F(RefusedBatch, whatever_the_settings_of_the_producer_are) {
  using Settings = std::map<std::string, std::string>;
  for (const Settings& more :
       {Settings{{"enable.idempotence", "false"}}, Settings{{"queue.buffering.max.messages", "100"}},
        Settings{{"batch.num.messages", "7"}, {"queue.buffering.max.ms", "3"}}, Settings{{"compression.codec", "gzip"}},
        Settings{{"message.max.bytes", "200000"}, {"batch.size", "20000"}}}) {
    SCOPED_TRACE(more.begin()->first);
    const auto topic = new_topic("max.message.bytes", "100000");
    auto records = many(topic, 1'000);
    std::string noise(150'000, ' ');  // too large also when it is compressed
    unsigned seed = 1;
    for (char& c : noise) c = static_cast<char>((seed = seed * 1'664'525U + 1'013'904'223U) >> 24);
    for (const std::size_t i : {3U, 500U}) records[i].payload = noise;
    expect_order(records, {3, 500}, servers(more));
  }
}

// A key has 250 records, all sent at once, and a batch has about 1,000 records of several keys. So the end of the
// refused batch separates records of a key.
TEST(Outbox, keeps_the_order_of_a_key_when_the_broker_refuses_some_of_its_messages) {
  TURNSTILE_NEEDS_SERVERS();
  World world(1);
  const std::string out = new_topic("cleanup.policy", "compact");  // it refuses records without a key
  static_cast<void>(world.query(
      "INSERT INTO outbox (shard, topic, record_key, record_payload) SELECT n % 16, '" + out +
      "', CASE WHEN n <> 0 THEN convert_to('k' || n % 16, 'UTF8') END, convert_to(rpad(n::text || ':', 1000, 'x'), "
      "'UTF8') FROM generate_series(0, 3999) n ORDER BY n"));
  Process consumer = world.consumer(world.toml());
  TopicReader published(out);
  EXPECT_TRUE(published.until([&] { return published.payloads().size() == 3'999; })) << world.output();
  EXPECT_TRUE(eventually([&] { return world.query("SELECT count(*) FROM outbox WHERE shard >= 0") == "0"; }));
  EXPECT_EQ(world.query("SELECT count(*) FROM outbox WHERE shard = -1"), "1");
  std::map<std::string, std::vector<int>> first_arrivals;
  std::set<int> seen;
  for (const auto& record : published.read) {
    const int number = std::stoi(*record.payload);
    if (seen.insert(number).second) first_arrivals[record.key.value_or("none")].push_back(number);
  }
  EXPECT_EQ(first_arrivals.size(), 16U);
  for (const auto& [key, numbers] : first_arrivals) EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << key;
}

}  // namespace
}  // namespace turnstile::test
