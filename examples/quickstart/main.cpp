#include <iostream>
#include <turnstile/turnstile.hpp>

using namespace turnstile;

// The INSERT, the message's id and the commit are one transaction: however often the message comes, there is one row.
void greet(const Message& message, Context& ctx) {
  ctx.defer("INSERT INTO greeting (name) VALUES ($1)", message.text());
}

int main() try {
  Consumer app{Config::load("turnstile.toml")};
  app.topic("greetings",
            greet | transactional() | limit(4) | retry(exponential{std::chrono::milliseconds{100}, 5}) | dead_letter());
  app.run();  // until SIGTERM or Ctrl-C; then it finishes, commits, and leaves the group
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
