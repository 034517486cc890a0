// Payments: each takes its money once, however often its message is delivered. It shows a transaction shared with the
// inbox, statements with and without a result, and retries. It also shows dead letters, a limit, a user-defined
// decorator, and a handler that takes a whole batch.

#include <iostream>
#include <span>
#include <string_view>
#include <turnstile/turnstile.hpp>
#include <vector>

using namespace turnstile;
using namespace std::chrono_literals;

namespace {

// {"account": "ada", "cents": 1250}: PostgreSQL reads the JSON, so that the program needs no parser.
void charge(const Message& message, Context& ctx) {
  // tx().exec() waits for the result, because the next statement depends on it.
  const Rows taken = ctx.tx().exec(
      "UPDATE account SET cents = cents - ($1::jsonb->>'cents')::bigint "
      "WHERE name = $1::jsonb->>'account' AND cents >= ($1::jsonb->>'cents')::bigint",
      message.text());
  // defer() does not wait: the statement is sent together with those of the batch's other messages.
  ctx.defer(
      "INSERT INTO payment (account, cents, state) "
      "VALUES ($1::jsonb->>'account', ($1::jsonb->>'cents')::bigint, $2)",
      message.text(), taken.affected() == 1 ? "paid" : "declined");
}

// All refunds of a batch in one statement: the fastest way, if the work allows it.
void refund(std::span<const Message> messages, Context& ctx) {
  std::vector<Jsonb> payloads;
  for (const Message& message : messages) payloads.push_back({message.text()});
  ctx.tx().exec(
      "WITH refund AS (SELECT r->>'account' AS account, (r->>'cents')::bigint AS cents "
      "                FROM unnest($1::jsonb[]) AS r), "
      "booked AS (INSERT INTO payment (account, cents, state) SELECT account, cents, 'refunded' FROM refund) "
      "UPDATE account SET cents = account.cents + total.cents "
      "FROM (SELECT account, sum(cents) AS cents FROM refund GROUP BY account) AS total WHERE name = total.account",
      payloads);
}

// A user-defined decorator. Data that PostgreSQL cannot read now (SQLSTATE class 22) will fail again: no retries.
auto refuse_unreadable() {
  return around([](std::span<const Message> messages, Context&, const Next& next) {
    try {
      return next();
    } catch (const SqlError& error) {
      // If the batch has several messages, only one is the reason: rethrow, and the framework isolates it.
      if (messages.size() > 1 || !error.sqlstate.starts_with("22")) throw;
      return Outcome::dead_letter(error.what());
    }
  });
}

}  // namespace

int main(int argc, char** argv) try {
  Consumer app{Config::load(argc > 1 ? argv[1] : "turnstile.toml")};
  app.topic("payments", charge | refuse_unreadable() | transactional() | limit("accounts", 16) |
                            ordered_by(Order::key) | retry(exponential{100ms, 5}) | dead_letter());
  app.topic("refunds", refund | refuse_unreadable() | transactional() | limit("accounts", 16) |
                           retry(exponential{100ms, 5}) | dead_letter());
  app.run();
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
