// The messages for mistakes that a person makes. Each message names the mistake, its place, and the remedy.

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/running.hpp"
#include "tests/support/world.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::Test;

/// The URL with `authority` in the place of user:password@host:port.
std::string url_to(const std::string& authority) {
  const std::string url = *postgres_url();
  const auto begin = url.find("://") + 3;
  return url.substr(0, begin) + authority + url.substr(url.find('/', begin));
}

std::string authority_of(const std::string& url) {
  const auto begin = url.find("://") + 3;
  return url.substr(begin, url.find('/', begin) - begin);
}

class BadInput : public Test {
 protected:
  void SetUp() override { TURNSTILE_NEEDS_SERVERS(); }

  static std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return at == std::string::npos ? text : text.replace(at, from.size(), to);
  }
  /// What bin/consumer prints before it ends with exit code 1.
  static std::string printed(World& world, const std::string& toml) {
    Process consumer = world.consumer(toml);
    EXPECT_EQ(consumer.wait(30s), 1) << world.output();
    return world.output();
  }
  /// What Consumer::run() throws.
  static std::string thrown(const World& world, const Config& config, const Pipeline& pipeline) {
    Running consumer(config, [&](Consumer& app) { app.topic(world.topic(), pipeline); });
    const std::string why = consumer.failure(30s);
    EXPECT_NE(why, "") << "it started";
    return why;
  }
  static Pipeline handler() {
    return [](const Message&) {} | transactional();
  }
};

/// Expects each of the parts in the text.
void expect_all(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << "lacks: " << part << "\nin: " << text;
}

TEST_F(BadInput, a_misspelt_key_and_wrong_limits_are_told_all_at_once_with_their_lines) {
  World world(1);
  const std::string text = world.toml("limt = 3\nlimit = 0\nbatch = -4\nkeep_ids_for = \"often\"\norder = \"keys\"");
  int line = 1;
  for (const char c : text.substr(0, text.find("limt"))) line += c == '\n' ? 1 : 0;
  const std::string answer = printed(world, text);
  const auto at = [&](int n) { return ".toml:" + std::to_string(line + n); };
  expect_all(answer, {at(0) + ": topics." + world.topic() + ".limt: unknown key; did you mean 'limit'?", at(1),
                      "limit: is 0, so no handler could run; set at least 1", at(2),
                      "batch: must be a whole number of at least 1, not -4", at(3),
                      "keep_ids_for: 'often' is not a duration; write a whole number and a unit", at(4),
                      "order: must be partition, key or none, not the string 'keys'; did you mean 'key'?"});
}

TEST_F(BadInput, a_limit_may_be_neither_negative_nor_a_text) {
  World world(1);
  expect_all(printed(world, world.toml("limit = -1")),
             {"limit: is -1, but must be at least 1: it is the largest number of running handlers"});
  World other(1);
  expect_all(printed(other, other.toml("limit = \"many\"")),
             {".toml:", "limit: must be a whole number", "not the string 'many'"});
}

TEST_F(BadInput, a_topic_that_does_not_exist_comes_with_the_command_that_creates_it) {
  World world(1);
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), handler() | dead_letter("no-such.dlq"));
    app.topic("no-such-topic", handler() | handler_timeout(1s));
  });
  expect_all(consumer.failure(),
             {"topic 'no-such-topic' does not exist; create it: kafka-topics.sh", "--create --topic no-such-topic",
              "dead letter topic 'no-such.dlq' does not exist", "--create --topic no-such.dlq"});
}

TEST_F(BadInput, a_broker_that_refuses_is_named) {
  World world(1);
  Config config = world.config();
  config.kafka["bootstrap.servers"] = "127.0.0.1:1";
  expect_all(thrown(world, config, handler()),
             {"kafka 127.0.0.1:1: ", "Connection refused", "Check ", "the brokers run"});
}

TEST_F(BadInput, a_wrong_password_is_told_without_it) {
  World world(1);
  Config config = world.config();
  const std::string authority = authority_of(*postgres_url());
  config.postgres->url = Secret(url_to("turnstile:hunter2secret@" + authority.substr(authority.find('@') + 1)));
  const std::string why = thrown(world, config, handler());
  expect_all(why, {"password authentication failed for user \"turnstile\""});
  EXPECT_EQ(why.find("hunter2secret"), std::string::npos) << why;
}

TEST_F(BadInput, a_database_that_refuses_is_named_without_the_password) {
  World world(1);
  Config config = world.config();
  config.postgres->url = Secret(url_to("turnstile:hunter2secret@127.0.0.1:1"));
  const std::string why = thrown(world, config, handler());
  expect_all(why, {"127.0.0.1", "port 1"});
  EXPECT_EQ(why.find("hunter2secret"), std::string::npos) << why;
}

TEST_F(BadInput, a_missing_schema_names_the_command) {
  World world(1);
  Config config = world.config();
  config.postgres->schema = "no_such_schema";
  expect_all(thrown(world, config, handler()), {"no_such_schema", "turnstile migrate up"});
}

TEST_F(BadInput, a_newer_schema_is_refused) {
  World world(1);
  static_cast<void>(world.query("INSERT INTO migration (number, name, checksum) VALUES (99, 'from_the_future', 'x')"));
  expect_all(thrown(world, world.config(), handler()), {world.schema(), "99", "newer"});
}

TEST_F(BadInput, ids_that_are_kept_shorter_than_the_topic_keeps_messages) {
  World world(1);
  expect_all(thrown(world, world.config("keep_ids_for = \"1h\""), handler()),
             {"test.toml:", "keep_ids_for: ids are kept for 1 h, but the topic keeps messages for 168 h",
              "raise keep_ids_for above the topic's retention.ms, or remove it"});
}

TEST_F(BadInput, a_handler_id_that_two_topics_use) {
  World world(1);
  const std::string other = world.add_topic("other");
  Running consumer(world.config(), [&](Consumer& app) {
    app.topic(world.topic(), handler() | handler_id("charge"));
    app.topic(other, handler() | handler_id("charge"));
  });
  expect_all(consumer.failure(),
             {"topic '" + other + "': handler id 'charge' also belongs to topic '" + world.topic() + "', so the ids",
              "give each topic its own with handler_id()"});
}

TEST_F(BadInput, a_topic_of_the_configuration_for_which_the_program_has_no_handler) {
  World world(1);
  expect_all(thrown(world, world.config("", "[topics.paymnets]\nhandler_timeout = \"1s\"\n"), handler()),
             {"topics.paymnets: the program has no handler for this topic; known: " + world.topic()});
}

TEST_F(BadInput, a_transactional_topic_without_a_database) {
  World world(1);
  Config config = world.config();
  config.postgres.reset();
  expect_all(thrown(world, config, handler()),
             {"transactional needs a database, but there is no [postgres]; set postgres.url"});
}

TEST_F(BadInput, duplicates_to_be_raised_with_no_dead_letter_topic_to_take_them) {
  World world(1);
  expect_all(thrown(world, world.config("duplicates = \"raise\""), handler()),
             {"duplicates: raise makes a dead letter of each duplicate, but the topic has no dead_letter"});
}

TEST_F(BadInput, a_file_that_is_not_there) {
  World world(1);
  Process consumer(std::string(TURNSTILE_BIN_DIR) + "/consumer", {"/no/such/file.toml", "t", "s"}, {},
                   world.folder() + "/output");
  EXPECT_EQ(consumer.wait(20s), 1);
  expect_all(world.output(), {"/no/such/file.toml"});
}

}  // namespace
}  // namespace turnstile::test
