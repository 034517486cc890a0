// The demo. Messages that are delivered more than once take effect once each, under a limit. A consumer is killed in
// the middle of its work. Before that, it runs the same messages on a consumer without Turnstile. `./dev demo` builds
// it, starts PostgreSQL for it, and runs it.

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "consumer.hpp"
#include "plain.hpp"
#include "settings.hpp"
#include "story.hpp"

namespace {

std::string why_not_so_many(const std::string& messages) {
  int number = 0;
  const auto [end, error] = std::from_chars(messages.data(), messages.data() + messages.size(), number);
  if (error == std::errc() && end == messages.data() + messages.size() && number >= demo::kLeastMessages &&
      number <= demo::kMostMessages)
    return {};
  return messages + " is not a number from " + std::to_string(demo::kLeastMessages) + " to " +
         std::to_string(demo::kMostMessages) +
         ": fewer records leave some step of the demo without work, more take many minutes";
}

/// The demo writes its configuration itself. TURNSTILE_POSTGRES_URL, for example, would replace parts of it.
void forget_variables() {
  std::vector<std::string> names;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const std::string_view text(*variable);
    if (text.starts_with("TURNSTILE_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  for (const auto& name : names) unsetenv(name.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  forget_variables();
  CLI::App app{"Messages that take effect once, a limit, and a killed consumer, to look at"};
  demo::StoryOptions story;
  auto* postgres =
      app.add_option("--postgres", story.postgres, "postgresql://… of a database in which a schema may be made");
  app.add_option("--kafka", story.kafka, "host:port of a Kafka; default: librdkafka's mock broker, embedded");
  app.add_option("--messages", story.messages, "records to publish, second copies included")
      ->check(CLI::Validator(why_not_so_many, "300 to 100000"))
      ->capture_default_str();
  int timeout = static_cast<int>(story.timeout.count());
  app.add_option("--timeout", timeout, "seconds that each step may take; more for a slow machine")
      ->check(CLI::Range(1, demo::kMostTimeout))
      ->capture_default_str();
  app.add_flag("--keep", story.keep, "leave the tables, the topics and the consumers' logs for a look");

  // For the consumers that the demo starts; not for people.
  demo::ConsumerOptions consumer;
  app.add_option("--consumer", consumer.number)->group("");
  app.add_option("--config", consumer.config)->group("");
  app.add_option("--board", consumer.board)->group("");
  app.add_option("--topic", consumer.topic)->group("");
  int handler_ms = 0;
  app.add_option("--handler-ms", handler_ms)->group("");
  bool plain = false;
  app.add_flag("--plain", plain)->group("");
  CLI11_PARSE(app, argc, argv);

  story.timeout = std::chrono::seconds(timeout);
  consumer.handler_time = std::chrono::milliseconds(handler_ms);
  if (consumer.number > 0) return plain ? demo::consume_plain(consumer) : demo::consume(consumer);
  if (postgres->count() == 0) {
    std::cerr << "turnstile_demo: --postgres URL is missing; ./dev demo starts a PostgreSQL and passes its address\n";
    return 2;
  }
  try {
    return demo::tell(story);
  } catch (const demo::Interrupted&) {
    std::cerr << "\nturnstile_demo: interrupted\n";
    return 128 + SIGINT;
  } catch (const std::exception& error) {
    std::cerr << "\nturnstile_demo: " << error.what() << '\n';
    return 1;
  }
}
