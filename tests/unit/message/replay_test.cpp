// Who runs a record that was published again.

#include "message/replay.hpp"

#include <gtest/gtest.h>

namespace turnstile::detail {
namespace {

OwnedMessage replayed(std::vector<Header> headers, const std::string& from = "payments[3]@17") {
  OwnedMessage message;
  message.topic = "payments";
  message.headers = std::move(headers);
  message.headers.push_back({"turnstile-replayed-from", from});
  return message;
}

std::optional<std::string> another(const OwnedMessage& record, std::string_view group = "billing") {
  return replayed_for_another(Message(record), "charge", group);
}

TEST(ReplayTest, only_its_handler_runs_it) {
  EXPECT_EQ(another(replayed({})), std::nullopt);
  EXPECT_EQ(another(replayed({{"turnstile-replayed-for", "charge"}})), std::nullopt);
  EXPECT_EQ(another(replayed({{"turnstile-replayed-for", "mail"}})), "mail");
  EXPECT_EQ(another(replayed({{"turnstile-replayed-for", "mail"}}, "orders[3]@17")), std::nullopt)
      << "a handler of another topic published it";
}

TEST(ReplayTest, a_handler_of_another_group_with_the_same_name_does_not) {
  const auto of = [](const char* group) {
    return replayed({{"turnstile-replayed-for", "charge"}, {"turnstile-replayed-group", group}});
  };
  EXPECT_EQ(another(of("billing")), std::nullopt);
  EXPECT_EQ(another(of("reports")), "charge of group reports");
  EXPECT_EQ(another(of("reports"), ""), std::nullopt) << "the group is unknown";
}

TEST(ReplayTest, what_is_sent_once_is_forgotten) {
  auto record = replayed({{"turnstile-replayed-for", "charge"},
                          {"turnstile-replayed-group", "billing"},
                          {"turnstile-retry", "7.1"},
                          {"message-id", "1"}});
  EXPECT_TRUE(is_of_replay(record));
  forget_replay(record);
  ASSERT_EQ(record.headers.size(), 1U);
  EXPECT_EQ(record.headers[0].name, "message-id");
}

}  // namespace
}  // namespace turnstile::detail
