// Events as bytes (tokens/wire.hpp).

#include "tokens/wire.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/unit/tokens/arbitrary.hpp"

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

}  // namespace
}  // namespace turnstile::tokens
