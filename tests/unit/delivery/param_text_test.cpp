#include "turnstile/ports/param_text.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "turnstile/error.hpp"

namespace turnstile::test {
namespace {

using ports::param_text;
using ::testing::Optional;
using namespace std::chrono;

std::string sqlstate_of(const Param& param) {
  try {
    static_cast<void>(param_text(param));
    return "";
  } catch (const SqlError& error) {
    return error.sqlstate;
  }
}

TEST(ParamText, is_as_postgres_writes_it) {
  const MessageId id = MessageId::from("00112233-4455-6677-8899-aabbccddeeff");
  const Timestamp at = sys_days(2026y / November / 26) + 20h + 5min + 9s + 7ms;
  constexpr std::array<std::byte, 2> kBytes{std::byte{0}, std::byte{0xff}};
  EXPECT_EQ(param_text(nullptr), std::nullopt);
  EXPECT_EQ(param_text(std::optional<MessageId>()), std::nullopt);
  EXPECT_THAT(param_text(true), Optional(std::string("t")));
  EXPECT_THAT(param_text(-7), Optional(std::string("-7")));
  EXPECT_THAT(param_text(0.1), Optional(std::string("0.1")));
  EXPECT_THAT(param_text(std::numeric_limits<double>::infinity()), Optional(std::string("Infinity")));
  EXPECT_THAT(param_text("text"), Optional(std::string("text")));
  EXPECT_THAT(param_text(std::span<const std::byte>(kBytes)), Optional(std::string("\\x00ff")));
  EXPECT_THAT(param_text(id), Optional(std::string("00112233-4455-6677-8899-aabbccddeeff")));
  EXPECT_THAT(param_text(at), Optional(std::string("2026-11-26 20:05:09.007+00")));
  EXPECT_THAT(param_text(Timestamp(-1ms)), Optional(std::string("1969-12-31 23:59:59.999+00")));
  EXPECT_THAT(param_text(Numeric{"12.50"}), Optional(std::string("12.50")));
  EXPECT_THAT(param_text(Jsonb{"{}"}), Optional(std::string("{}")));
}

TEST(ParamText, quotes_elements_of_arrays_where_they_must_be_quoted) {
  EXPECT_THAT(param_text(std::vector<std::int64_t>{1, -2}), Optional(std::string("{1,-2}")));
  EXPECT_THAT(param_text(std::vector<double>{0.5, 1e300}), Optional(std::string("{0.5,1e+300}")));
  EXPECT_THAT(param_text(std::vector<std::string>{}), Optional(std::string("{}")));
  EXPECT_THAT(param_text(std::vector<std::string>{"x", "", "null", "a b", "{", "q\"", "\\"}),
              Optional(std::string(R"({x,"","null","a b","{","q\"","\\"})")));
  EXPECT_THAT(param_text(std::vector<std::string_view>{"nullx", "a,b"}), Optional(std::string(R"({nullx,"a,b"})")));
  EXPECT_THAT(param_text(std::vector<MessageId>{MessageId{}}),
              Optional(std::string("{00000000-0000-0000-0000-000000000000}")));
  EXPECT_THAT(param_text(std::vector<Timestamp>{Timestamp{}}),
              Optional(std::string(R"({"1970-01-01 00:00:00.000+00"})")));
  EXPECT_THAT(param_text(std::vector<Numeric>{{"1"}, {"2.5"}}), Optional(std::string("{1,2.5}")));
  EXPECT_THAT(param_text(std::vector<Jsonb>{{R"({"a": 1})"}}), Optional(std::string(R"({"{\"a\": 1}"})")));
  const std::vector<MessageId> ids(2);
  EXPECT_EQ(param_text(std::span<const MessageId>(ids)), param_text(ids));
}

TEST(ParamText, refuses_what_the_types_cannot_hold) {
  const std::string nul("a\0b", 3);
  EXPECT_EQ(sqlstate_of(nul), "22021");
  EXPECT_EQ(sqlstate_of(std::vector<std::string>{"a", nul}), "22021");
  EXPECT_EQ(sqlstate_of(Numeric{nul}), "22021");
  EXPECT_EQ(sqlstate_of(std::vector<Jsonb>{{nul}}), "22021");
  for (const Timestamp wrong : {Timestamp::min(), Timestamp::max(), Timestamp(sys_days(10'000y / January / 1)),
                                Timestamp(sys_days(1y / January / 1) - 1ms)}) {
    EXPECT_EQ(sqlstate_of(wrong), "22008") << wrong.time_since_epoch().count();
    EXPECT_EQ(sqlstate_of(std::vector<Timestamp>{Timestamp{}, wrong}), "22008");
  }
  EXPECT_THAT(param_text(Timestamp(sys_days(1y / January / 1))), Optional(std::string("0001-01-01 00:00:00.000+00")));
  EXPECT_THAT(param_text(Timestamp(sys_days(10'000y / January / 1) - 1ms)),
              Optional(std::string("9999-12-31 23:59:59.999+00")));
}

}  // namespace
}  // namespace turnstile::test
