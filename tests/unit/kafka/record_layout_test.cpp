// What the bytes around a record tell, for the record formats of Kafka's protocol. Each record lies in a buffer of its own
// that ends with it, so that the address sanitizer sees a read behind it.

#include "record_layout.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace turnstile::kafka {
namespace {

/// Where a number takes one byte more than the number before it, and some that are like another's bytes.
const std::vector<std::size_t> kSizes{1,      2,      63,        64,        65,        127,      128,
                                      255,    256,    8'191,     8'192,     8'193,     8'320,    16'384,
                                      65'535, 65'536, 1'048'575, 1'048'576, 1'048'577, 2'097'152};

std::string zigzag(std::int64_t number) {
  std::string bytes;
  auto rest = static_cast<std::uint64_t>(number < 0 ? -2 * number - 1 : 2 * number);
  for (; rest > 127; rest >>= 7U) bytes += static_cast<char>(rest | 128U);
  return bytes + static_cast<char>(rest);
}

std::string big_endian(std::uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> static_cast<unsigned>(shift));
  return bytes;
}

bool says_none(const std::string& in_front, std::size_t size, const std::string& behind) {
  const std::string made = in_front + std::string(size, '\0') + behind;
  const std::vector<char> buffer(made.begin(), made.end());
  return certainly_without_headers(buffer.data() + in_front.size(), size);
}

/// Attributes, time, offset, and no key: what is in front of a payload's size in format 2.
std::string format_2(std::size_t size) {
  return std::string(4, '\0') + zigzag(-1) + zigzag(static_cast<std::int64_t>(size));
}

TEST(RecordLayout, tells_a_record_without_headers_from_one_with_some) {
  for (const auto size : kSizes) {
    EXPECT_TRUE(says_none(format_2(size), size, zigzag(0))) << size;
    for (const int headers : {1, 2, 63, 64, 8'192})
      EXPECT_FALSE(says_none(format_2(size), size, zigzag(headers) + "...")) << size << " with " << headers;
  }
}

TEST(RecordLayout, reads_nothing_behind_a_record_of_an_older_format) {
  for (const auto size : kSizes) {
    const std::string in_front =
        std::string(14, '\0') + big_endian(0xffffffffU) + big_endian(static_cast<std::uint32_t>(size));
    EXPECT_FALSE(says_none(in_front, size, "")) << size;
  }
}

TEST(RecordLayout, has_no_size_that_two_formats_write_alike) {
  for (std::uint64_t size = 1; size < 0x80000000U; size = size + 1 + size / 1'000) {
    const std::string in_2 = zigzag(static_cast<std::int64_t>(size));
    // The key of the older format could end with any byte.
    const std::string before = std::string(1, in_2.front()) + big_endian(static_cast<std::uint32_t>(size));
    EXPECT_FALSE(before.ends_with(in_2)) << size;
  }
}

TEST(RecordLayout, tells_nothing_of_records_without_a_payload) {
  EXPECT_FALSE(certainly_without_headers(nullptr, 0));
  EXPECT_FALSE(certainly_without_headers("", 0)) << "librdkafka has a constant for it";
}

TEST(RecordLayout, trusts_only_versions_whose_sources_were_read) {
  EXPECT_FALSE(leaves_records_in_place(0x01'09'02'ff));
  EXPECT_TRUE(leaves_records_in_place(0x02'00'02'ff));
  EXPECT_TRUE(leaves_records_in_place(0x02'08'00'ff));
  EXPECT_FALSE(leaves_records_in_place(0x02'09'00'ff));
}

}  // namespace
}  // namespace turnstile::kafka
