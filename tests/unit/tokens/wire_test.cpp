// Events as bytes (tokens/wire.hpp).

#include "tokens/wire.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/tokens/arbitrary.hpp"
#include "tokens/records.hpp"

namespace turnstile::tokens {
namespace {

RC_GTEST_PROP(TokensWire, what_is_written_is_read, ()) {
  const Event event = *any_event();
  RC_ASSERT(decode(encode(event)) == event);
}

RC_GTEST_PROP(TokensWire, any_bytes_are_an_event, (const std::string& bytes)) {
  RC_ASSERT(std::holds_alternative<Unknown>(decode(bytes).body));  // the magic number cannot occur by chance
}

RC_GTEST_PROP(TokensWire, spoiled_bytes_are_an_event_too, ()) {
  std::string bytes = encode(*any_event());
  for (int times = *rc::gen::inRange(1, 5); times > 0; --times)
    bytes[*rc::gen::inRange<std::size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  bytes.resize(*rc::gen::inRange<std::size_t>(0, bytes.size() + 1));
  State state;
  apply(state, 0, decode(bytes));
  RC_ASSERT(state.last == 0);
}

TEST(TokensWire, names_are_bytes) {
  const Event event{1, 1, 1, Acquire{{.limiter = std::string("a\0\xff\xfe", 4), .wants = 1}}};
  EXPECT_EQ(decode(encode(event)), event);
}

TEST(TokensWire, an_event_of_a_later_version_is_unknown_and_keeps_its_sender) {
  Event event{77, 3, 5, Unknown{}};
  const std::string later =
      encode(event) + std::string("\xc2\x0c\x02hi", 5);  // field 200, which this version does not have
  EXPECT_EQ(decode(later), event);
}

TEST(TokensWire, without_the_magic_number_it_is_no_event) {
  EXPECT_EQ(decode(""), Event{});
  std::string bytes = encode({1, 1, 1, Left{}});
  bytes[1] ^= 1;
  EXPECT_EQ(decode(bytes), Event{});
}

TEST(TokensWire, what_is_too_long_is_not_read) {
  Keep keep;
  for (std::size_t i = 0; i < 5'000; ++i) keep.lines.push_back({.limiter = std::string(255, 'x')});
  const std::string bytes = encode({1, 1, 1, keep});
  ASSERT_GT(bytes.size(), kLongestRecord);
  EXPECT_EQ(decode(bytes), Event{});
}

TEST(TokensWire, a_long_body_is_written_in_records_that_are_read) {
  const std::string name(255, 'x');
  constexpr Count kMost = ~Count{0};
  Keep keep{.lines = {}, .checkpoint = Checkpoint{.position = 7, .digest = kMost}};
  PartitionsClaimed claimed;
  PartitionsRevoked revoked;
  for (std::int32_t i = 0; i < 5'000; ++i) {
    keep.lines.push_back(
        {name + std::to_string(i), kMost, true, kMost, kMost, kMost, kMost, kMost, kMost, true, true, kMost, true});
    revoked.partitions.push_back({name, i, name, name});
    claimed.claims.push_back({{name, i, name, name}, kMost, i});
  }
  Keep read_keep;
  PartitionsClaimed read_claimed;
  PartitionsRevoked read_revoked;
  for (const Body& whole : {Body{keep}, Body{claimed}, Body{revoked}}) {
    const auto pieces = in_records(whole);
    EXPECT_GT(pieces.size(), 2U);
    for (const Body& piece : pieces) {
      const Event event = decode(encode({~0ULL, ~0U, ~0ULL, piece}));
      ASSERT_EQ(event.body, piece) << "too long to be read";
      if (const auto* one = std::get_if<Keep>(&event.body)) {
        read_keep.lines.insert(read_keep.lines.end(), one->lines.begin(), one->lines.end());
        if (one->checkpoint) read_keep.checkpoint = one->checkpoint;
      } else if (const auto* some = std::get_if<PartitionsClaimed>(&event.body)) {
        read_claimed.claims.insert(read_claimed.claims.end(), some->claims.begin(), some->claims.end());
      } else if (const auto* gone = std::get_if<PartitionsRevoked>(&event.body)) {
        read_revoked.partitions.insert(read_revoked.partitions.end(), gone->partitions.begin(), gone->partitions.end());
      }
    }
  }
  EXPECT_EQ(read_keep, keep);
  EXPECT_EQ(read_claimed, claimed);
  EXPECT_EQ(read_revoked, revoked);
}

TEST(TokensWire, a_short_body_is_one_record) {
  for (const Body& body : {Body{Keep{}}, Body{PartitionsClaimed{}}, Body{PartitionsRevoked{}}, Body{Left{}}})
    EXPECT_EQ(in_records(body), std::vector<Body>{body});
}

}  // namespace
}  // namespace turnstile::tokens
