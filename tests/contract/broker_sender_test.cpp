// The contract of the port Broker: many records at once, each until the broker accepts it or refuses it permanently.

#include <algorithm>
#include <chrono>
#include <map>

#include "broker_contract.hpp"

namespace turnstile::test {
namespace {

using ::testing::Each;
using ::testing::Field;
using ::testing::HasSubstr;
using Kind = ports::BrokerSender::Fate::Kind;

OwnedMessage keyed(const std::string& topic, const std::string& key, const std::string& payload) {
  OwnedMessage message = text(topic, -1, payload);
  message.key = key;
  return message;
}

TEST_P(BrokerContract, sends_many_at_once_each_key_in_order) {
  const auto topic = new_topic(3);
  std::vector<OwnedMessage> records;
  for (int i = 0; i < 2'000; ++i) records.push_back(keyed(topic, std::to_string(i % 7), std::to_string(i)));
  const auto sender = broker->open_sender();
  const auto fates = sender->send(records);
  ASSERT_EQ(fates.size(), records.size());
  EXPECT_THAT(fates, Each(Field(&ports::BrokerSender::Fate::kind, Kind::sent)));
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_read(records.size()));
  std::map<std::string, std::vector<int>> of_key;
  for (const auto& record : reader.read) of_key[*record.key].push_back(std::stoi(*record.payload));
  EXPECT_EQ(of_key.size(), 7U);
  for (const auto& [key, numbers] : of_key) EXPECT_TRUE(std::is_sorted(numbers.begin(), numbers.end())) << key;
}

TEST_P(BrokerContract, a_record_that_is_never_taken_is_refused_with_a_reason_and_the_others_go) {
  const auto refused = world->refused_topic();
  const auto sender = broker->open_sender();
  if (is("mock")) {  // it refuses all topics alike
    const auto fates = sender->send(std::vector{keyed(refused, "k", "1")});
    EXPECT_EQ(fates[0].kind, Kind::refused);
    EXPECT_THAT(fates[0].why, HasSubstr(refused));
    return;
  }
  const auto topic = new_topic(1);
  const auto fates =
      sender->send(std::vector{keyed(topic, "k", "1"), keyed(refused, "k", "2"), keyed(topic, "k", "3")});
  EXPECT_EQ(fates[0].kind, Kind::sent);
  EXPECT_EQ(fates[1].kind, Kind::refused);
  EXPECT_THAT(fates[1].why, HasSubstr(refused));
  EXPECT_EQ(fates[2].kind, Kind::sent);
  EXPECT_EQ(sender->send(std::vector{keyed(topic, "k", "4")})[0].kind, Kind::sent) << "and it goes on";
}

TEST_P(BrokerContract, a_name_that_no_topic_can_have_is_refused_as_such) {
  const auto sender = broker->open_sender();
  const auto producer = broker->open_producer();
  const auto topic = new_topic(1);
  for (const std::string& name : {std::string("bad/name"), std::string("."), std::string(250, 'x'), std::string()}) {
    const auto fates = sender->send(std::vector{keyed(name, "k", "1"), keyed(topic, "k", "2")});
    EXPECT_EQ(fates[0].kind, Kind::refused) << name;
    EXPECT_THAT(fates[0].why, HasSubstr("Correct the name")) << name;
    EXPECT_EQ(fates[1].kind, Kind::sent) << name;
    try {
      producer->send(keyed(name, "k", "3"));
      ADD_FAILURE() << "sent to " << name;
    } catch (const BrokerError& error) {
      EXPECT_THAT(error.what(), HasSubstr("Correct the name"));
    }
  }
}

TEST_P(BrokerContract, the_first_record_of_a_topic_does_not_wait_for_a_timer) {
  std::vector<std::string> topics;
  for (int i = 0; i < 12; ++i) topics.push_back(new_topic(1));
  const auto sender = broker->open_sender();
  const auto producer = broker->open_producer();
  const auto began = std::chrono::steady_clock::now();
  for (std::size_t i = 0; i < topics.size(); ++i) {
    const auto record = keyed(topics[i], "k", "1");
    if (i % 2 == 1) producer->send(record);
    else EXPECT_EQ(sender->send({&record, 1})[0].kind, Kind::sent);
  }
  // librdkafka's own timer looks for new topics once a second: each of the two would need five seconds or more.
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(4));
}

TEST_P(BrokerContract, a_cancelled_sender_knows_nothing_of_what_it_did_not_send) {
  const auto topic = new_topic(1);
  const auto sender = broker->open_sender();
  EXPECT_EQ(sender->send(std::vector{keyed(topic, "k", "1")})[0].kind, Kind::sent);
  sender->cancel();
  EXPECT_EQ(sender->send(std::vector{keyed(topic, "k", "2")})[0].kind, Kind::unknown);
}

TEST_P(BrokerContract, sends_nothing_when_nothing_is_asked) { EXPECT_TRUE(broker->open_sender()->send({}).empty()); }

}  // namespace
}  // namespace turnstile::test
