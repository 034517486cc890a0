// How much memory is counted for the headers of records, and how many records are read for that.

#include "engine/header_sizes.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

namespace turnstile::detail {
namespace {

/// A record is an Offset. Its headers have the size that a test gives.
class SizedHeaders final : public HeaderReader {
 public:
  explicit SizedHeaders(std::function<std::size_t(Offset)> size) : size_(std::move(size)) {}
  std::vector<HeaderView> all(const void* record) const override {
    const Offset offset = *static_cast<const Offset*>(record);
    read.insert(offset);
    const std::size_t size = size_(offset);
    if (size == 0) return {};
    return {{"h", std::string_view(bytes_).substr(0, size - 1)}};
  }
  Found find(const void*, std::string_view) const override { return {}; }

  mutable std::set<Offset> read;

 private:
  std::function<std::size_t(Offset)> size_;
  std::string bytes_ = std::string(300'000, 'x');
};

/// The bytes of records `first` to `first + count - 1`, which come in blocks of this size.
std::size_t size_of(HeaderSizes& sizes, const SizedHeaders& reader, Offset first, Offset count, Offset block = 100) {
  std::vector<Offset> offsets;
  for (Offset i = 0; i < count; ++i) offsets.push_back(first + i);
  std::size_t bytes = 0;
  std::vector<Message> messages;
  for (const Offset& offset : offsets) {
    Message::Fields fields;
    fields.topic = "t";
    fields.offset = offset;
    messages.emplace_back(fields, reader, &offset);
    if (static_cast<Offset>(messages.size()) < block && &offset != &offsets.back()) continue;
    bytes += sizes.of(messages);
    messages.clear();
  }
  return bytes;
}

constexpr std::size_t kLarge = 300'000;

TEST(HeaderSizes, reads_one_record_of_16_and_counts_for_all) {
  for (const Offset block : {1, 7, 1'000}) {
    HeaderSizes sizes;
    const SizedHeaders reader([](Offset) { return 100; });
    const std::size_t bytes = size_of(sizes, reader, 1'000'000, 16'000, block);
    EXPECT_NEAR(static_cast<double>(bytes), 16'000 * 264.0, 16'000 * 264.0 / 50) << "twice, and an overhead";
    EXPECT_NEAR(static_cast<double>(reader.read.size()), 1'016, 20) << "and the first 16";
  }
}

TEST(HeaderSizes, counts_the_first_records_exactly) {
  for (const Offset first : {0, 1, 1'000'003}) {
    HeaderSizes sizes;
    const SizedHeaders reader([](Offset) { return kLarge; });
    EXPECT_EQ(size_of(sizes, reader, first, 1), 2 * kLarge + 64);
  }
}

TEST(HeaderSizes, records_without_headers_take_nothing) {
  HeaderSizes sizes;
  const SizedHeaders reader([](Offset) { return 0; });
  EXPECT_EQ(size_of(sizes, reader, 0, 10'000), 0U);
}

TEST(HeaderSizes, finds_large_headers_whatever_their_distance_is) {
  std::size_t uncounted = 0, cases = 0;
  for (Offset distance = 1; distance <= 20; ++distance) {
    for (Offset phase = 0; phase < distance; ++phase, ++cases) {
      HeaderSizes sizes;
      const auto is_large = [&](Offset offset) { return offset >= 1'000 && offset % distance == phase; };
      const SizedHeaders reader([&](Offset offset) { return is_large(offset) ? kLarge : 0; });
      const std::size_t counted = size_of(sizes, reader, 0, 5'000) / (2 * kLarge);
      std::size_t large = 0;
      for (Offset offset = 0; offset < 5'000; ++offset) large += is_large(offset) ? 1 : 0;
      EXPECT_LE(large - counted, 200U) << "every " << distance << ", from " << phase << " on";
      uncounted += large - counted;
    }
  }
  EXPECT_LE(uncounted / cases, 20U);
}

TEST(HeaderSizes, reads_few_records_again_after_the_last_large_headers) {
  HeaderSizes sizes;
  const SizedHeaders reader([](Offset offset) { return offset == 5 ? kLarge : 10; });
  static_cast<void>(size_of(sizes, reader, 0, 2'000));
  reader.read.clear();
  static_cast<void>(size_of(sizes, reader, 2'000, 16'000));
  EXPECT_NEAR(static_cast<double>(reader.read.size()), 1'000, 20);
}

}  // namespace
}  // namespace turnstile::detail
