// Which part of a record gives it its id, so that an edit must not change it.

#include <gtest/gtest.h>

#include "message/message_id.hpp"
#include "message/request_headers.hpp"
#include "turnstile/replay.hpp"

namespace turnstile::test {
namespace {

OwnedMessage record() {
  OwnedMessage message;
  message.topic = "payments";
  message.key = "order-1";
  message.payload = R"({"order": {"id/x": "order-2"}, "n": 17, "amount": 12})";
  message.headers = {{"message-id", "order-3"}, {"ce_id", "e-1"}, {"ce_source", "/shop"}};
  return message;
}

OwnedMessage with_payload(const std::string& payload) {
  OwnedMessage message = record();
  message.payload = payload;
  return message;
}

OwnedMessage with_header(const std::string& name, const std::string& value) {
  OwnedMessage message = record();
  for (auto& header : message.headers) {
    if (header.name == name) header.value = value;
  }
  return message;
}

TEST(EditedId, a_header_that_is_the_id_stays) {
  const auto id = MessageId::from("order-3");
  EXPECT_EQ(changed_id_source(record(), with_header("message-id", "order-4"), id), "header:message-id");
  EXPECT_EQ(changed_id_source(record(), with_header("ce_id", "e-2"), id), std::nullopt);
  EXPECT_EQ(changed_id_source(record(), with_payload("{}"), id), std::nullopt);
}

TEST(EditedId, a_field_that_is_the_id_stays) {
  const auto id = MessageId::from("order-2");
  EXPECT_EQ(changed_id_source(record(), with_payload(R"({"order": {"id/x": "order-5"}})"), id), "json:/order/id~1x");
  EXPECT_EQ(changed_id_source(record(), with_payload("no JSON"), id), "json:/order/id~1x");
  EXPECT_EQ(changed_id_source(record(), with_payload(R"({"order": {"id/x": "order-2"}, "amount": 13})"), id),
            std::nullopt);
  EXPECT_EQ(changed_id_source(record(), with_payload(R"({"n": 18})"), MessageId::from("17")), "json:/n");
}

TEST(EditedId, both_parts_of_a_cloud_event_stay) {
  const auto source = std::get<detail::IdSource>(detail::IdSource::parse("cloudevents"));
  const OwnedMessage before = record();
  const auto id = std::get<MessageId>(source.of(Message(before), 0));
  EXPECT_EQ(changed_id_source(before, with_header("ce_source", "/other"), id), "cloudevents");
  EXPECT_EQ(changed_id_source(before, with_header("message-id", "order-4"), id), std::nullopt);
}

/// As with message_id = "offset".
TEST(EditedId, an_id_that_no_part_of_the_record_gives_allows_each_edit) {
  EXPECT_EQ(changed_id_source(record(), with_header("ce_id", "e-2"), id_of_place({{"payments", 0}, 7}, 0)),
            std::nullopt);
}

TEST(EditedId, the_number_of_a_request_stays) {
  OwnedMessage request = record();
  detail::stamp(request, {MessageId::from("session"), 5, 4, {}, false}, "secret");
  OwnedMessage edited = request;
  edited.payload = "{}";
  const auto id = MessageId::from("any");
  EXPECT_EQ(changed_id_source(request, edited, id), std::nullopt);
  for (auto& header : edited.headers) {
    if (header.name == "request-number") header.value = "6";
  }
  EXPECT_EQ(changed_id_source(request, edited, id), "request");
}

TEST(EditedId, a_payload_nested_deeper_than_the_stack_is_no_problem) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_EQ(changed_id_source(with_payload(deep), with_payload("{}"), MessageId::from("order-3")), std::nullopt);
}

}  // namespace
}  // namespace turnstile::test
