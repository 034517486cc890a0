#include "turnstile/message.hpp"

#include <gtest/gtest.h>

namespace turnstile {
namespace {

OwnedMessage sample() {
  OwnedMessage owned;
  owned.topic = "payments";
  owned.partition = 3;
  owned.offset = 1042;
  owned.timestamp = Timestamp(std::chrono::milliseconds(1'700'000'000'123));
  owned.key = "customer-7";
  owned.payload = std::string("a\0b", 3);
  owned.headers = {{"trace", "t1"}, {"message-id", "m1"}, {"trace", "t2"}, {"empty", ""}, {"null", std::nullopt}};
  return owned;
}

TEST(MessageTest, a_view_shows_what_the_record_holds) {
  const OwnedMessage owned = sample();
  const Message message(owned);
  EXPECT_EQ(message.topic(), "payments");
  EXPECT_EQ(message.partition(), 3);
  EXPECT_EQ(message.offset(), 1042);
  EXPECT_EQ(message.timestamp(), owned.timestamp);
  EXPECT_EQ(message.key(), "customer-7");
  EXPECT_EQ(message.text().size(), 3U);
  EXPECT_EQ(where(message), "payments[3]@1042");
}

TEST(MessageTest, the_last_header_of_a_name_wins_and_all_are_counted) {
  const OwnedMessage owned = sample();
  const Message message(owned);
  EXPECT_EQ(message.header("trace"), "t2");
  EXPECT_EQ(message.find("trace").count, 2);
  EXPECT_EQ(message.header("missing"), std::nullopt);
  EXPECT_EQ(message.find("missing").count, 0);
  EXPECT_EQ(message.headers().size(), 5U);
}

TEST(MessageTest, an_empty_header_and_one_without_a_value_differ) {
  const OwnedMessage owned = sample();
  const Message message(owned);
  EXPECT_EQ(message.header("empty"), "");
  EXPECT_EQ(message.find("null").count, 1);
  EXPECT_EQ(message.header("null"), std::nullopt);
}

TEST(MessageTest, a_null_payload_is_not_an_empty_one) {
  OwnedMessage owned;
  EXPECT_EQ(Message(owned).payload(), std::nullopt);
  EXPECT_EQ(Message(owned).text(), "");
  owned.payload = "";
  EXPECT_EQ(Message(owned).payload(), "");
}

TEST(MessageTest, own_copies_everything) {
  const OwnedMessage owned = sample();
  const OwnedMessage copy = Message(owned).own();
  EXPECT_EQ(copy.topic, owned.topic);
  EXPECT_EQ(copy.partition, owned.partition);
  EXPECT_EQ(copy.offset, owned.offset);
  EXPECT_EQ(copy.timestamp, owned.timestamp);
  EXPECT_EQ(copy.key, owned.key);
  EXPECT_EQ(copy.payload, owned.payload);
  EXPECT_EQ(copy.headers, owned.headers);
}

TEST(MessageTest, one_without_a_record_has_no_headers) {
  const Message message;
  EXPECT_TRUE(message.headers().empty());
  EXPECT_EQ(message.find("any").count, 0);
}

}  // namespace
}  // namespace turnstile
