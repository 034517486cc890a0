// The inbox without Kafka, as docs/guide/inbox.md shows it. Its contract is in tests/contract/once_test.cpp.

#include "turnstile/inbox.hpp"

#include <gtest/gtest.h>

#include "turnstile/error.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile {
namespace {

std::string charge(Inbox& inbox, const std::string& request_id, int cents) {
  const Once charged = inbox.once("charge", request_id, [&](Context& ctx) {
    ctx.tx().exec("UPDATE account SET cents = cents - $1", cents);
    ctx.reply("receipt: " + std::to_string(cents) + " cents");
  });
  return charged.response.value_or("");
}

TEST(Inbox, charges_once_and_answers_all_alike) {
  const auto store = std::make_shared<testing::MemoryInbox>();
  Inbox inbox{store};
  EXPECT_EQ(charge(inbox, "r1", 12), "receipt: 12 cents");
  EXPECT_EQ(charge(inbox, "r1", 12), "receipt: 12 cents");
  EXPECT_EQ(store->committed().size(), 1U);
}

/// Requests without an id are not all the same request.
TEST(Inbox, refuses_an_empty_id) {
  const auto store = std::make_shared<testing::MemoryInbox>();
  Inbox inbox{store};
  EXPECT_THROW(charge(inbox, "", 12), Error);
  EXPECT_THROW(inbox.check("charge", ""), Error);
  EXPECT_THROW(inbox.record("charge", "", "receipt"), Error);
  EXPECT_THROW(inbox.once("", "r1", [](Context&) {}), Error);
  EXPECT_EQ(store->committed().size(), 0U);
}

}  // namespace
}  // namespace turnstile
