#include "turnstile/types.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <string>

namespace turnstile {
namespace {

TEST(MessageIdTest, a_uuid_is_kept_in_any_case) {
  const std::string uuid = "0192f0c1-7e2a-7b3c-8d4e-5f60718293a4";
  EXPECT_EQ(MessageId::from(uuid).text(), uuid);
  EXPECT_EQ(MessageId::from("0192F0C1-7E2A-7B3C-8D4E-5F60718293A4").text(), uuid);
  EXPECT_EQ(MessageId::from(uuid).bytes[0], 0x01);
  EXPECT_EQ(MessageId::from(uuid).bytes[15], 0xA4);
}

// The first half of a digest that sha256sum prints. Ids of an earlier build must be found again.
TEST(MessageIdTest, another_text_is_hashed) {
  EXPECT_EQ(MessageId::from("abc").text(), "ba7816bf-8f01-cfea-4141-40de5dae2223");
  EXPECT_EQ(MessageId::from("").text(), "e3b0c442-98fc-1c14-9afb-f4c8996fb924");
}

TEST(MessageIdTest, what_only_resembles_a_uuid_is_hashed) {
  const std::string uuid = "0192f0c1-7e2a-7b3c-8d4e-5f60718293a4";
  for (const std::string& near :
       {"{" + uuid + "}", uuid.substr(1), uuid + " ", std::string("0192f0c17e2a7b3c8d4e5f60718293a4"),
        std::string("0192f0c1-7e2a-7b3c-8d4e-5f60718293ag"), std::string("0192f0c17-e2a-7b3c-8d4e-5f60718293a4")}) {
    EXPECT_NE(MessageId::from(near), MessageId::from(uuid)) << near;
  }
}

TEST(MessageIdTest, sixteen_raw_bytes_are_no_uuid) {
  const MessageId uuid = MessageId::from("61626364-6566-6768-696a-6b6c6d6e6f70");
  EXPECT_NE(MessageId::from("abcdefghijklmnop"), uuid);
}

// Hazard: text-ids: ids of any bytes and length fit, a NUL included.
TEST(MessageIdTest, nul_and_a_megabyte_are_ids_like_others) {
  const std::string with_nul("a\0b", 3);
  EXPECT_NE(MessageId::from(with_nul), MessageId::from("a"));
  EXPECT_NE(MessageId::from(with_nul), MessageId::from("ab"));
  const std::string megabyte(1 << 20, 'x');
  EXPECT_NE(MessageId::from(megabyte), MessageId::from(std::string_view(megabyte).substr(1)));
}

RC_GTEST_PROP(MessageIdTest, text_is_read_back, (const std::array<std::uint8_t, 16>& bytes)) {
  const MessageId id{bytes};
  RC_ASSERT(MessageId::from(id.text()) == id);
}

TEST(TypesTest, a_partition_and_a_record_have_one_form_for_people) {
  EXPECT_EQ(to_string(TopicPartition{"payments", 3}), "payments[3]");
  EXPECT_EQ(to_string(TopicPartitionOffset{{"payments", 3}, 1042}), "payments[3]@1042");
}

}  // namespace
}  // namespace turnstile
