// A consumer as a user would write it, for tests that start, stop, freeze and kill it from outside.
//
//   consumer CONFIG TOPIC SCHEMA
//
// Each message makes one row in SCHEMA.effect. A payload may say what goes wrong: "throw", "throw-int", "sleep:MS",
// "throw-once:FILE" (throws unless FILE exists, and makes it), "loop" (never returns).

#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

void misbehave(const Message& message) {
  const std::string text(message.text());
  if (text == "throw") throw std::runtime_error("told to throw");
  if (text == "throw-int") throw 42;
  if (text.starts_with("sleep:")) std::this_thread::sleep_for(std::chrono::milliseconds(std::stol(text.substr(6))));
  if (text.starts_with("throw-once:")) {
    const std::string file = text.substr(11);
    if (!std::ifstream(file)) {
      std::ofstream(file) << "thrown";
      throw std::runtime_error("told to throw once");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string sql = "INSERT INTO " + std::string(argv[3]) + ".effect (id, attempt, pid) VALUES ($1, $2, $3)";
  const auto handler = [&sql](const Message& message, Context& context) {
    misbehave(message);
    const std::string id(message.header("message-id").value_or("none"));
    if (message.text() == "defer") context.defer(sql, id, context.attempt(), ::getpid());
    else context.tx().exec(sql, id, context.attempt(), ::getpid());
  };
  try {
    Consumer app{Config::load(argv[1])};
    app.topic(argv[2], handler | transactional() | retry(exponential{20ms, 3, 200ms}) | dead_letter());
    app.run();
  } catch (const std::exception& e) {
    std::cerr << "consumer: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
