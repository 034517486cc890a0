#include "turnstile/context.hpp"

#include <gtest/gtest.h>

#include <stdexcept>

#include "turnstile/error.hpp"

namespace turnstile {
namespace {

class NoStatements final : public Transaction {
 public:
  Rows run(std::string_view, std::span<const Param>) override { return {}; }
  void queue(std::string_view sql, std::span<const Param>) override { queued = sql; }
  std::string queued;
};

TEST(ContextTest, the_transaction_is_the_one_of_the_batch) {
  NoStatements transaction;
  const Context context({.tx = &transaction});
  EXPECT_EQ(&context.tx(), &transaction);
  context.defer("UPDATE t SET n = $1", 1);
  EXPECT_EQ(transaction.queued, "UPDATE t SET n = $1");
}

TEST(ContextTest, without_a_transaction_the_error_says_what_to_do) {
  const Context context({.handler = "charge"});
  try {
    static_cast<void>(context.tx());
    FAIL() << "a transaction out of nothing";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(),
                 "handler 'charge' asked for a transaction, but in mode at_least_once a handler has no transaction; "
                 "add transactional() to its decorators, or set mode = \"transactional\" for its topic");
  }
}

TEST(ErrorTest, a_config_error_holds_a_line_for_each_problem) {
  const ConfigError error({"a.toml:1: x: wrong", "a.toml:2: y: wrong"});
  EXPECT_STREQ(error.what(), "a.toml:1: x: wrong\na.toml:2: y: wrong");
  EXPECT_EQ(error.problems.size(), 2U);
}

}  // namespace
}  // namespace turnstile
