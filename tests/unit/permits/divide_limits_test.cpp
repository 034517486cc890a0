// Limits of operators that do not fit into a part's Opened.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tokens/wire.hpp"
#include "turnstile/error.hpp"
#include "turnstile/testing/token_log.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(DivideLimits, that_do_not_fit_into_one_record_need_more_parts) {
  const auto log = std::make_shared<testing::MemoryTokenParts>();
  const auto write = [&](const tokens::Event& event) { log->part(0)->append(tokens::encode(event)); };
  write({7, 1, 1,
         tokens::Joined{
             .host = "h1", .pid = 11, .client = "billing", .lease_ms = 10'000, .knows = 2, .most_limiters = 16'384}});
  tokens::MemberId writer = 100;
  for (tokens::Position at = 0; at < 4'000; ++at) {
    std::string name = std::to_string(at);
    name.resize(250, 'x');
    write({++writer, 1, 1, tokens::LimitSet{.limiter = name, .limit = 1'000'000, .seen = at}});
  }
  TokenReader reader(testing::open_parts(log)(0), testing::open_parts(log));
  reader.start(reader.end());
  ASSERT_EQ(reader.permits().limiters.size(), 4'000U);
  EXPECT_THAT(reader.why_not_divided(2), HasSubstr("Divide the log into more parts"));
  EXPECT_THROW((void)reader.divide(2, seconds(20)), Error);
  EXPECT_EQ(reader.parts(), 1U);
  EXPECT_THAT(reader.why_not_divided(4), IsEmpty());
  EXPECT_TRUE(reader.divide(4, seconds(20)));
}

}  // namespace
}  // namespace turnstile
