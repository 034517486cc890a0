// Which requests the dashboard refuses.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/src/dashboard/guard.hpp"

namespace turnstile::cli::dashboard {
namespace {

using ::testing::HasSubstr;

const Rules kReadOnly{.host = "127.0.0.1", .allow_changes = false, .token = "secret"};
const Rules kChanges{.host = "127.0.0.1", .allow_changes = true, .token = "secret"};

Caller get(const std::string& host) { return {.method = "GET", .path = "/api/overview", .host = host}; }
Caller post() {
  return {.method = "POST",
          .path = "/api/limits",
          .host = "127.0.0.1:8080",
          .origin = "http://127.0.0.1:8080",
          .site = "same-origin",
          .type = "application/json",
          .token = "secret",
          .length = "2"};
}
std::string why(const Rules& rules, const Caller& caller) {
  const auto refused = refuse(rules, caller);
  if (!refused) return "";
  EXPECT_EQ(refused->why.find('\n'), std::string::npos) << refused->why;
  return refused->why;
}

TEST(DashboardGuard, its_own_address_and_localhost_are_answered) {
  for (const auto* host : {"127.0.0.1:8080", "localhost:8080", "LOCALHOST:9000", "[::1]:8080", "localhost"})
    EXPECT_EQ(why(kReadOnly, get(host)), "") << host;
  EXPECT_EQ(why({.host = "ops-1"}, get("ops-1:8080")), "");
}

TEST(DashboardGuard, another_name_for_this_address_is_refused) {
  for (const auto* host :
       {"evil.example:8080", "", "127.0.0.1.evil.example:8080", "localhost.evil.example", "10.0.0.7:8080"})
    EXPECT_THAT(why(kReadOnly, get(host)), HasSubstr("another site could have given its name this address")) << host;
  EXPECT_EQ(why({.host = "0.0.0.0"}, get("10.0.0.7:8080")), "");
  EXPECT_NE(why({.host = "0.0.0.0"}, get("evil.example:8080")), "");
}

TEST(DashboardGuard, another_origin_is_refused) {
  auto caller = get("127.0.0.1:8080");
  caller.origin = "http://evil.example";
  EXPECT_EQ(why(kReadOnly, caller), "the request comes from another origin, \"http://evil.example\": refused");
  caller.origin = "http://127.0.0.1:9000";
  EXPECT_THAT(why(kReadOnly, caller), HasSubstr("another origin"));
  caller.origin = "null";
  EXPECT_THAT(why(kReadOnly, caller), HasSubstr("another origin"));
  caller.origin = "";
  caller.site = "cross-site";
  EXPECT_THAT(why(kReadOnly, caller), HasSubstr("a page of another origin"));
  caller.path = "/";
  EXPECT_EQ(why(kReadOnly, caller), "") << "another site may link to the page";
}

TEST(DashboardGuard, changes_need_the_option_the_token_and_json) {
  EXPECT_EQ(why(kChanges, post()), "");
  EXPECT_THAT(why(kReadOnly, post()), HasSubstr("--allow-changes"));
  auto caller = post();
  caller.token = "secreT";
  EXPECT_THAT(why(kChanges, caller), HasSubstr("CSRF token"));
  caller.token = "";
  EXPECT_THAT(why(kChanges, caller), HasSubstr("CSRF token"));
  EXPECT_THAT(why({.host = "127.0.0.1", .allow_changes = true, .token = ""}, caller), HasSubstr("CSRF token"));
  caller = post();
  caller.type = "text/plain";
  EXPECT_THAT(why(kChanges, caller), HasSubstr("application/json"));
  caller = post();
  caller.coding = "chunked";
  EXPECT_EQ(refuse(kChanges, caller)->status, 411);
  caller = post();
  caller.length = "";
  EXPECT_EQ(refuse(kChanges, caller)->status, 411) << "its body would end with the connection";
  caller = post();
  caller.method = "DELETE";
  EXPECT_EQ(refuse(kChanges, caller)->status, 405);
}

TEST(DashboardGuard, a_refusal_is_one_line_whatever_the_headers_have) {
  auto caller = get("evil\r\nX: y\x1b[1m" + std::string(10'000, 'x'));
  EXPECT_LT(why(kReadOnly, caller).size(), 300U);
}

TEST(DashboardGuard, loopback_addresses) {
  for (const auto* host : {"localhost", "127.0.0.1", "127.8.9.1", "::1"}) EXPECT_TRUE(is_loopback(host)) << host;
  for (const auto* host : {"0.0.0.0", "::", "10.0.0.7", "127.evil.example", "ops-1"})
    EXPECT_FALSE(is_loopback(host)) << host;
}

}  // namespace
}  // namespace turnstile::cli::dashboard
