// Records whose headers are not parsed because the bytes around the record tell that there are none, in each compression.

#include <gtest/gtest.h>
#include <librdkafka/rdkafka.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "record_layout.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/mock.hpp"
#include "turnstile/kafka/record_reader.hpp"

namespace turnstile {
namespace {

class HeadersInKafka : public ::testing::TestWithParam<const char*> {
 protected:
  /// Payloads of many sizes, of zeros, each without headers and with one or many.
  static std::vector<OwnedMessage> records() {
    std::vector<OwnedMessage> all;
    const std::vector<std::vector<Header>> headers{
        {}, {{"", std::nullopt}}, {{"a", "1"}}, std::vector<Header>(200, {"b", "2"})};
    OwnedMessage record;
    record.topic = "t";
    for (const std::size_t size : {0U, 1U, 63U, 64U, 8'191U, 8'192U, 70'000U})
      for (const bool has_key : {false, true})
        for (const auto& of_record : headers) {
          record.key = has_key ? std::optional(std::string(3, '\0')) : std::nullopt;
          record.payload = std::string(size, '\0');
          record.headers = of_record;
          all.push_back(record);
        }
    record.payload.reset();
    all.push_back(record);
    return all;
  }

  kafka::MockBroker mock_;
};

TEST_P(HeadersInKafka, are_known_to_be_absent_without_parsing_them) {
  mock_.create_topic("t", 1);
  auto settings = mock_.settings();
  settings["group.id"] = "g";
  settings["compression.codec"] = GetParam();
  settings["linger.ms"] = "50";  // several in one batch
  const auto broker = kafka::open_broker(settings, nullptr);
  const auto sent = records();
  for (const auto& fate : broker->open_sender()->send(sent))
    ASSERT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent);

  kafka::RecordReader reader(settings, "t", nullptr);
  std::size_t at = 0;
  reader.read(reader.ranges({}, {}).at(0), [&](std::span<const Message> messages) {
    for (const auto& message : messages) {
      const auto& wanted = sent.at(at++);
      EXPECT_EQ(message.own().headers, wanted.headers) << at;
      EXPECT_EQ(message.own().payload, wanted.payload) << at;
      const auto& fetched = *static_cast<const rd_kafka_message_t*>(message.native());
      EXPECT_EQ(kafka::certainly_without_headers(fetched.payload, fetched.len),
                wanted.headers.empty() && fetched.len > 0)
          << at;
    }
    return true;
  });
  EXPECT_EQ(at, sent.size());
}

/// librdkafka parses no more than 100,000 headers, but sends more. Not to know them is not to have none.
TEST(UnreadableHeadersInKafka, are_not_taken_for_absent_ones) {
  kafka::MockBroker mock;
  mock.create_topic("t", 1);
  OwnedMessage record;
  record.topic = "t";
  const auto broker = kafka::open_broker(mock.settings(), nullptr);
  for (const std::size_t count : {100'000U, 100'001U}) {
    record.headers.assign(count, {"h", "v"});
    ASSERT_EQ(broker->open_sender()->send({&record, 1}).at(0).kind, ports::BrokerSender::Fate::Kind::sent);
  }
  auto settings = mock.settings();
  settings["group.id"] = "g";
  kafka::RecordReader reader(settings, "t", nullptr);
  std::vector<HeaderReader::Found> found;
  reader.read(reader.ranges({}, {}).at(0), [&](std::span<const Message> messages) {
    for (const auto& message : messages) found.push_back(message.find("h"));
    return true;
  });
  ASSERT_EQ(found.size(), 2U);
  EXPECT_EQ(found[0].count, 100'000);
  EXPECT_FALSE(found[0].unreadable);
  EXPECT_EQ(found[1].count, 0);
  EXPECT_TRUE(found[1].unreadable);
}

INSTANTIATE_TEST_SUITE_P(Codecs, HeadersInKafka, ::testing::Values("none", "gzip", "snappy", "lz4", "zstd"),
                         [](const auto& codec) { return std::string(codec.param); });

}  // namespace
}  // namespace turnstile
