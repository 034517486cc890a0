// The configuration file: what is read, and what a person is told about what is wrong in it.

#include "turnstile/config.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>

#include "turnstile/error.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;

Config parse(std::string_view toml) { return Config::parse(toml, "turnstile.toml"); }

std::vector<std::string> problems(std::string_view toml) {
  try {
    parse(toml);
  } catch (const ConfigError& error) {
    return error.problems;
  }
  return {};
}

using Lines = std::vector<std::string>;

TEST(ConfigTest, everything_that_can_be_written) {
  const Config config = parse(R"(
[kafka]
"bootstrap.servers" = "a:9092, b:9092"
"session.timeout.ms" = 45000
"enable.ssl.certificate.verification" = true
client.id = "shop"
[postgres]
url = "postgresql://app@db/shop"
schema = "inbox_2"
connections = 8
prepared_statements = false
lock_timeout = "3s"
connect_timeout = "1s"
[consumer]
workers = 16
window = 500
drain_timeout = "20s"
commit_interval = "500ms"
stall_after = "5m"
[log]
level = "debug"
format = "json"
[topics.payments]
handler = "charge"
mode = "transactional"
order = "key"
limit = 64
limiter = "psp"
message_id = "json:/id"
keep_ids_for = "7d"
handler_timeout = "30s"
retry = { attempts = 7, backoff = "100ms..5m" }
dead_letter = "payments.dlq"
batch = 200
duplicates = "raise"
fingerprint = true
)");
  EXPECT_EQ(config.kafka.at("bootstrap.servers"), "a:9092, b:9092");
  EXPECT_EQ(config.kafka.at("session.timeout.ms"), "45000");
  EXPECT_EQ(config.kafka.at("enable.ssl.certificate.verification"), "true");
  EXPECT_EQ(config.kafka.at("client.id"), "shop");
  ASSERT_TRUE(config.postgres);
  EXPECT_EQ(config.postgres->url.reveal(), "postgresql://app@db/shop");
  EXPECT_EQ(config.postgres->schema, "inbox_2");
  EXPECT_EQ(config.postgres->connections, 8);
  EXPECT_FALSE(config.postgres->prepared_statements);
  EXPECT_EQ(config.postgres->lock_timeout, 3s);
  EXPECT_EQ(config.postgres->connect_timeout, 1s);
  EXPECT_EQ(config.consumer.workers, 16);
  EXPECT_EQ(config.consumer.window, 500U);
  EXPECT_EQ(config.consumer.drain_timeout, 20s);
  EXPECT_EQ(config.consumer.commit_interval, 500ms);
  EXPECT_EQ(config.consumer.stall_after, 5min);
  EXPECT_EQ(config.log.level, "debug");
  EXPECT_EQ(config.log.format, "json");
  const TopicSettings& topic = config.topics.at("payments");
  EXPECT_EQ(topic.handler, "charge");
  EXPECT_EQ(topic.mode, Mode::transactional);
  EXPECT_EQ(topic.order, Order::key);
  EXPECT_EQ(topic.limit, 64);
  EXPECT_EQ(topic.limiter, "psp");
  EXPECT_EQ(topic.message_id, "json:/id");
  EXPECT_EQ(topic.keep_ids_for, 168h);
  EXPECT_EQ(topic.handler_timeout, 30s);
  EXPECT_EQ(topic.retry, (RetryPolicy{7, 100ms, 5min}));
  EXPECT_EQ(topic.dead_letter, "payments.dlq");
  EXPECT_EQ(topic.batch, 200);
  EXPECT_EQ(topic.duplicates, DuplicatePolicy::raise);
  EXPECT_EQ(topic.fingerprint, true);
}

TEST(ConfigTest, an_empty_file_is_all_defaults) {
  const Config config = parse("");
  EXPECT_FALSE(config.postgres);
  EXPECT_TRUE(config.topics.empty());
  EXPECT_EQ(config.group(), "turnstile");
  EXPECT_EQ(config.kafka.at("group.id"), "turnstile");
  EXPECT_EQ(Config{}.group(), "turnstile");
}

TEST(ConfigTest, a_topic_of_which_nothing_is_said_leaves_everything_to_the_code) {
  const Config config = parse("[topics.payments]");
  const TopicSettings& topic = config.topics.at("payments");
  EXPECT_EQ(topic.mode, std::nullopt);
  EXPECT_EQ(topic.limit, std::nullopt);
  EXPECT_EQ(topic.retry, std::nullopt);
}

TEST(ConfigTest, topic_names_with_dots_and_dashes_stand_in_quotes) {
  const Config config = parse("[topics.\"eu.payments-v2\"]\nlimit = 3\n");
  EXPECT_EQ(config.topics.at("eu.payments-v2").limit, 3);
  EXPECT_EQ(config.where("topics.eu.payments-v2.limit"), "turnstile.toml:2: topics.eu.payments-v2.limit");
  EXPECT_EQ(problems("[topics.payments.v2]\nlimit = 3\n"),
            Lines{"turnstile.toml:1: topics.payments.v2: unknown section; put a topic name that contains a dot in "
                  "quotes: [topics.\"payments.v2\"]"});
}

TEST(ConfigTest, a_limiters_name_is_as_long_as_the_token_log_takes) {
  const std::string limiter = "[topics.a]\nlimit = 1\nlimiter = '";
  EXPECT_EQ(problems(limiter + std::string(256, 'x') + "'"),
            Lines{"turnstile.toml:3: topics.a.limiter: has 256 bytes; the name of a limiter has at most 255"});
  EXPECT_EQ(parse(limiter + std::string(255, 'x') + "'").topics.at("a").limiter->size(), 255U);
}

TEST(ConfigTest, a_retry_policy_of_which_one_part_is_given_leaves_the_other_to_the_pipeline) {
  EXPECT_EQ(parse("[topics.a]\nretry = { attempts = 2 }").topics.at("a").retry->over(RetryPolicy{7, 1s, 2s}),
            (RetryPolicy{2, 1s, 2s}))
      << "the rest is as the pipeline says";
  EXPECT_EQ(parse("[topics.a.retry]\nbackoff = '1s..2s'").topics.at("a").retry->over(RetryPolicy{7, 3s, 4s}),
            (RetryPolicy{7, 1s, 2s}));
}

TEST(ConfigTest, all_problems_come_at_once_in_the_order_of_their_lines) {
  EXPECT_EQ(problems(R"([topics.payments]
limmit = 64
batch = 0
[log]
level = "loud"
[topcs]
)"),
            (Lines{"turnstile.toml:2: topics.payments.limmit: unknown key; did you mean 'limit'?",
                   "turnstile.toml:3: topics.payments.batch: must be a whole number of at least 1, not 0",
                   "turnstile.toml:5: log.level: must be trace, debug, info, warn, error or off, not the string 'loud'",
                   "turnstile.toml:6: topcs: unknown section; did you mean [topics]?"}));
}

struct Wrong {
  const char* toml;
  const char* problem;  ///< without "turnstile.toml:"
};
void PrintTo(const Wrong& wrong, std::ostream* out) { *out << wrong.problem; }

class WrongConfigTest : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongConfigTest, is_told_in_one_line) {
  EXPECT_EQ(problems(GetParam().toml), Lines{std::string("turnstile.toml:") + GetParam().problem});
}

INSTANTIATE_TEST_SUITE_P(
    Limits, WrongConfigTest,
    ::testing::Values(
        Wrong{"[topics.a]\nlimit = 0",
              "2: topics.a.limit: is 0, so no handler could run; set at least 1, or remove "
              "limit: then only the number of workers limits the topic"},
        Wrong{"[topics.a]\nlimit = -3",
              "2: topics.a.limit: is -3, but must be at least 1: it is the largest number of running handlers"},
        Wrong{
            "[topics.a]\nlimit = \"64\"",
            "2: topics.a.limit: must be a whole number from 1 to 1000000000, not the string '64'; write it without quotes"},
        Wrong{"[topics.a]\nlimit = \"many\"",
              "2: topics.a.limit: must be a whole number from 1 to 1000000000, not the string 'many'"},
        Wrong{"[topics.a]\nlimit = 1.5",
              "2: topics.a.limit: must be a whole number from 1 to 1000000000, not a number with a fraction"},
        Wrong{"[topics.a]\nlimit = [1]",
              "2: topics.a.limit: must be a whole number from 1 to 1000000000, not an array"},
        Wrong{"[topics.a]\nlimit = 1\n[topics.b]\nlimiter = \"a\"\nlimit = 2",
              "5: topics.b.limit: limiter 'a' has a limit of 2 here, but of 1 in topic 'a'; set the same limit in "
              "both, or name another limiter"}));

INSTANTIATE_TEST_SUITE_P(
    Topics, WrongConfigTest,
    ::testing::Values(
        Wrong{"[limits]\nreserve = 2",
              "2: limits.reserve: needs limits.reserve_for: the number of processes for which each "
              "limit sets a reserve aside"},
        Wrong{"[limits]\nreserve = 2\nreserve_for = 4\n[topics.a]\nlimit = 8",
              "5: topics.a.limit: a limit of 8 leaves nothing to share: limits.reserve times limits.reserve_for sets 8 "
              "permits aside; raise the limit, or lower the reserve"},
        Wrong{"[topics.a]\nmode = \"by_offset\"",
              "2: topics.a.mode: by_offset needs a database, but there is no [postgres]; set postgres.url "
              "(TURNSTILE_POSTGRES_URL), or set the mode to at_least_once"},
        Wrong{"[topics.a]\nmode = \"leased\"",
              "2: topics.a.mode: leased needs a database, but there is no [postgres]; set postgres.url "
              "(TURNSTILE_POSTGRES_URL), or set the mode to at_least_once"},
        Wrong{"[topics.a]\nlease = \"900ms\"", "2: topics.a.lease: must be at least 1s, not 900ms"},
        Wrong{"[topics.a]\nunknown = \"redo\"", "2: topics.a.unknown: must be park or rerun, not the string 'redo'"},
        Wrong{"[topics.a]\nmode = \"transaction\"",
              "2: topics.a.mode: must be transactional, leased, by_offset, numbered or at_least_once, not the string "
              "'transaction'; did you mean 'transactional'?"},
        Wrong{"[topics.a]\nmode = \"transactional\"",
              "2: topics.a.mode: transactional needs a database, but there is no [postgres]; set postgres.url "
              "(TURNSTILE_POSTGRES_URL), or set the mode to at_least_once"},
        Wrong{"[topics.a]\norder = 1", "2: topics.a.order: must be partition, key or none, not 1"},
        Wrong{"[topics.a]\nhandler = \"\"", "2: topics.a.handler: must not be empty"},
        Wrong{"[topics.a]\nmessage_id = \"headers:x\"",
              "2: topics.a.message_id: 'headers:x' is not a source of ids; use "
              "header:NAME, key, json:/pointer, cloudevents or offset"},
        Wrong{"[topics.a]\nrequest_window = 7",
              "2: topics.a.request_window: must be a whole number from 8 to 32768, not 7"},
        Wrong{"[topics.a]\nstore_down = \"go\"", "2: topics.a.store_down: must be wait or run, not the string 'go'"},
        Wrong{"[topics.a]\nkeep_ids_for = \"500ms\"", "2: topics.a.keep_ids_for: must be at least 1s, not 500ms"},
        Wrong{
            "[topics.a]\nhandler_timeout = 30",
            "2: topics.a.handler_timeout: must be a duration in quotes, a whole number and a unit (ms, s, m, h, d) such as "
            "\"30s\", not 30"},
        Wrong{"[topics.a]\nlimit = 1000000001",
              "2: topics.a.limit: must be a whole number from 1 to 1000000000, not 1000000001"},
        Wrong{"[limits]\nlease = \"25h\"", "2: limits.lease: must be at most 1d, not 25h"},
        Wrong{"[limits]\nreserve_time = \"60d\"", "2: limits.reserve_time: must be at most 49d, not 60d"},
        Wrong{"[limits]\ntopic = \"a b\"",
              "2: limits.topic: 'a b' is not a valid topic name: Kafka allows 1 "
              "to 249 letters, digits, '.', '_' and '-'"},
        Wrong{"[topics.a]\nretry = 5",
              "2: topics.a.retry: must be a table, such as { attempts = 5, backoff = \"100ms..30s\" }"},
        Wrong{"[topics.a]\nretry = { attempts = 0 }",
              "2: topics.a.retry.attempts: must be a whole number from 1 to 2147483647, not 0"},
        Wrong{"[topics.a]\nretry = { attemps = 3 }",
              "2: topics.a.retry.attemps: unknown key; did you mean 'retry.attempts'?"},
        Wrong{
            "[topics.a]\nretry = { backoff = \"30s\" }",
            "2: topics.a.retry.backoff: must be the shortest and the longest wait, such as \"100ms..30s\", not the string '30s'"},
        Wrong{"[topics.a]\nretry = { backoff = \"1s..99999d\" }",
              "2: topics.a.retry.backoff: has a longest wait of 99999d, but the longest one is 3650d"},
        Wrong{"[postgres]\nurl = \"host=x\"\nconnect_timeout = \"100000d\"",
              "3: postgres.connect_timeout: must be at most 1d, not 100000d"},
        Wrong{"[topics.a]\nretry = { backoff = \"30s..100ms\" }",
              "2: topics.a.retry.backoff: has a longest wait of 100ms, which is below its first wait of 30s"},
        Wrong{"[topics.a]\ndead_letter = \"a\"",
              "2: topics.a.dead_letter: is the source topic itself, so failed messages "
              "would loop forever; choose another topic"},
        Wrong{"[topics.a]\ndead_letter = \"a b\"",
              "2: topics.a.dead_letter: 'a b' is not a valid topic name: Kafka allows 1 "
              "to 249 letters, digits, '.', '_' and '-'"},
        Wrong{"[topics.a]\nfingerprint = \"true\"",
              "2: topics.a.fingerprint: must be true or false, not the string 'true'"},
        Wrong{"[topics]\nlimit = 3",
              "2: topics.limit: must be a section, such as [topics.payments], with the settings "
              "of one topic"},
        Wrong{"[topics.\"a b\"]",
              "1: topics.a b: 'a b' is not a valid topic name: Kafka allows 1 to 249 letters, digits, "
              "'.', '_' and '-'"}));

/// What contradicts the mode that the file sets; no program can mend it, since the file wins over the code.
INSTANTIATE_TEST_SUITE_P(
    Modes, WrongConfigTest,
    ::testing::Values(
        Wrong{"[postgres]\nurl = \"host=x\"\n[topics.a]\nmode = \"by_offset\"\norder = \"none\"",
              "5: topics.a.order: must be partition: mode by_offset counts every record below a settled record as "
              "settled"},
        Wrong{"[postgres]\nurl = \"host=x\"\n[topics.a]\nmode = \"by_offset\"\nmessage_id = \"header:x\"",
              "5: topics.a.message_id: names the source of ids, but mode by_offset counts records and stores no ids; "
              "remove message_id, or use transactional"},
        Wrong{"[postgres]\nurl = \"host=x\"\n[topics.a]\nmode = \"by_offset\"\nfingerprint = true",
              "5: topics.a.fingerprint: needs stored ids, but mode by_offset counts records and stores no ids; remove "
              "fingerprint, or use transactional"},
        Wrong{"[postgres]\nurl = \"host=x\"\n[topics.a]\nmode = \"by_offset\"\nstore_down = \"run\"",
              "5: topics.a.store_down: applies to mode leased only; set the mode to leased, or remove store_down"},
        Wrong{
            "[postgres]\nurl = \"host=x\"\n[topics.a]\nmode = \"transactional\"\nmessage_id = \"key\"\nrequest_window = 8",
            "6: topics.a.request_window: applies to mode numbered only; set the mode to numbered, or remove "
            "request_window"},
        Wrong{"[topics.a]\nmode = \"at_least_once\"\nlease = \"30s\"",
              "3: topics.a.lease: applies to mode leased only; set the mode to leased, or remove lease"},
        Wrong{"[topics.a]\nmode = \"at_least_once\"\nduplicates = \"replay\"",
              "3: topics.a.duplicates: replay needs stored responses, but mode at_least_once stores none; "
              "set the mode to transactional or leased"},
        Wrong{"[topics.a]\nmode = \"at_least_once\"\nreply_topics = \"b\"",
              "3: topics.a.reply_topics: needs stored responses, but mode at_least_once stores none; set the mode to "
              "transactional or leased"}));

TEST(ConfigTest, what_the_program_may_still_set_is_not_missed_in_the_file) {
  const std::string postgres = "[postgres]\nurl = \"host=x\"\n[topics.a]\n";
  EXPECT_EQ(problems(postgres + "lease = \"30s\"\nduplicates = \"replay\"\nreply_topics = \"b\""), Lines{});
  EXPECT_EQ(problems(postgres + "mode = \"transactional\"\nduplicates = \"raise\""), Lines{});
  EXPECT_EQ(problems(postgres + "mode = \"transactional\"\nduplicates = \"replay\""), Lines{});
  EXPECT_EQ(problems(postgres + "mode = \"numbered\"\nrequest_window = 64"), Lines{});
  EXPECT_EQ(problems(postgres + "mode = \"at_least_once\"\nlimiter = \"psp\""), Lines{});
}

INSTANTIATE_TEST_SUITE_P(
    Others, WrongConfigTest,
    ::testing::Values(
        Wrong{"limit = 3", "1: limit: unknown key; did you mean [limits]?"},
        Wrong{"kafka = 3", "1: kafka: must be a section, [kafka], not a value"},
        Wrong{"[kafka]\n\"client.id\" = [1]",
              "2: kafka.client.id: must be a string, a number, true or false, not an array"},
        Wrong{"[kafka]\n\"bootstrap.servers\" = \"a:99999\"",
              "2: kafka.bootstrap.servers: 'a:99999' has an invalid port; write HOST:PORT with a port from 1 to 65535"},
        Wrong{
            "[kafka]\n\"bootstrap.servers\" = \"a:1,\"",
            "2: kafka.bootstrap.servers: has an empty address; write a list of HOST:PORT, such as \"localhost:9092\""},
        Wrong{"[postgres]\nschema = \"x\"",
              "1: postgres: the database's url is missing; set url in [postgres], or TURNSTILE_POSTGRES_URL"},
        Wrong{
            "[postgres]\nurl = \"host=x\"\nschema = \"my-schema\"",
            "3: postgres.schema: 'my-schema' is not a valid schema name: use 1 to 63 letters, digits and underscores, "
            "and do not begin with a digit"},
        Wrong{"[postgres]\nurl = \"host=x\"\nschema = \"pg_x\"",
              "3: postgres.schema: 'pg_x' begins with pg_, which PostgreSQL reserves for itself"},
        Wrong{"[consumer]\nworkers = -1", "2: consumer.workers: must be a whole number from 0 to 1024, not -1"},
        Wrong{"[consumer]\ndrain_timeout = \"5m\"",
              "2: consumer.drain_timeout: 5m must be below kafka.\"max.poll.interval.ms\" (5m); otherwise the group "
              "removes this member while it drains"},
        Wrong{"[consumer]\nthreads = 4",
              "2: consumer.threads: unknown key; the keys here are workers, window, "
              "window_bytes, drain_timeout, commit_interval, stall_after, purge, when_halted"},
        Wrong{"[log]\nformat = \"jsn\"",
              "2: log.format: must be text or json, not the string 'jsn'; did you mean 'json'?"}));

/// Where PostgreSQL must end the transaction of a handler that has frozen, before its partition's next owner waits for it.
TEST(ConfigTest, a_handler_in_a_transaction_may_not_run_longer_than_the_session_lasts) {
  const std::string kafka = "[postgres]\nurl = \"host=x\"\n[kafka]\n\"bootstrap.servers\" = \"a:1\"\n";
  EXPECT_EQ(
      problems(kafka + "[topics.a]\nmode = \"transactional\"\nhandler_timeout = \"45s\""),
      Lines{
          "turnstile.toml:7: topics.a.handler_timeout: 45s must be below Kafka's session timeout of 45s (librdkafka's "
          "default); shorten it, or raise kafka.\"session.timeout.ms\""});
  EXPECT_EQ(
      problems(kafka + "\"session.timeout.ms\" = 20000\n[topics.a]\nmode = \"by_offset\""),
      Lines{"topics.a.handler_timeout: 30s (the default) must be below Kafka's session timeout of 20s; shorten it, or "
            "raise kafka.\"session.timeout.ms\""});
  EXPECT_EQ(problems(kafka + "[topics.a]\nmode = \"leased\"\nhandler_timeout = \"12h\""), Lines{});
  EXPECT_EQ(problems(kafka + "[topics.a]\nmode = \"at_least_once\"\nhandler_timeout = \"12h\""), Lines{});
  EXPECT_EQ(
      problems("[kafka]\n\"session.timeout.ms\" = 6000\n[postgres]\nurl = \"host=x\"\nlock_timeout = \"6s\""),
      Lines{"turnstile.toml:5: postgres.lock_timeout: 6s must be below Kafka's session timeout of 6s; shorten it, or "
            "raise kafka.\"session.timeout.ms\""});
  // On a poll loop of one's own the session is not ours to know.
  EXPECT_EQ(problems("[topics.a]\nhandler_timeout = \"10m\""), Lines{});
}

TEST(ConfigTest, a_group_that_cannot_name_a_token_log_is_refused_where_a_limit_needs_one) {
  const auto with_group = [](const std::string& group, const std::string& limits = "") {
    return problems("[kafka]\n\"group.id\" = \"" + group + "\"\n" + limits + "[topics.a]\nlimit = 3\n");
  };
  const auto refused = with_group("a b");
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused[0].substr(0, refused[0].find(", and")),
            "turnstile.toml:2: kafka.group.id: the token log would be topic 'a b.tokens'");
  EXPECT_NE(refused[0].find("[limits] topic"), std::string::npos);
  EXPECT_EQ(with_group(std::string(245, 'a')).size(), 1U);
  EXPECT_EQ(with_group("a b", "[limits]\ntopic = \"log\"\n"), Lines{});
  EXPECT_EQ(with_group("a b", "[limits]\nover = \"process\"\n"), Lines{});
  EXPECT_EQ(problems("[kafka]\n\"group.id\" = \"a b\"\n[topics.a]\n"), Lines{});
}

TEST(ConfigTest, text_that_is_no_toml_is_refused_with_line_and_column) {
  EXPECT_EQ(problems("[topics.a]\nlimit = many\n").at(0).substr(0, 50),
            "turnstile.toml:2:9: this is not valid TOML: Error ");
  EXPECT_NE(problems("[topics.a]\nlimit = 1\nlimit = 2\n").at(0).find("cannot redefine existing integer 'limit'"),
            std::string::npos);
}

// Wherever a secret stands in a file that cannot be read, its text must not come back out.
TEST(ConfigTest, no_error_quotes_a_secret) {
  const std::string secret = "truehunter2";  // begins like a value, of which the TOML library quotes as far as it read
  const std::vector<std::string> files{
      "[postgres]\nurl = " + secret,
      "[postgres]\nurl = \"" + secret,
      "[postgres]\nurl = postgresql://app:" + secret + "@db/shop",
      "[postgres]\nurl = \"postgresql://app:" + secret + "@db:99999/shop\"",
      "[postgres]\nurl = \"mysql://app:" + secret + "@db/shop\"",
      "[postgres]\nurl = \"" + secret + "\"",
      "[postgres]\nurl = [\"" + secret + "\"]",
      "[postgres]\nurl = [\n" + secret + "\n]",
      "[postgres]\nulr = \"" + secret + "\"",
      "[postgres]\nurl \"" + secret + "\"",
      "[kafka]\n\"sasl.password\" = " + secret,
      "[kafka]\n\"sasl.password\" = '" + secret,
      "[kafka]\n\"sasl.password\" = [\"" + secret + "\"]",
      "[kafka]\n\"sasl.password\" = \"\\q" + secret + "\"",
      "[kafka]\n\"sasl.password\" = \"a\" " + secret,
      "kafka = { \"ssl.key.password\" = " + secret + " }",
  };
  for (const auto& file : files) {
    const auto found = problems(file);
    EXPECT_FALSE(found.empty()) << file;
    for (const auto& problem : found) {
      EXPECT_EQ(problem.find("trueh"), std::string::npos) << problem;
      EXPECT_EQ(problem.find("hunter"), std::string::npos) << problem;
    }
  }
}

RC_GTEST_PROP(ConfigTest, no_text_does_more_than_throw_config_error, (const std::string& text)) {
  try {
    parse(text);
  } catch (const ConfigError& error) {
    RC_ASSERT(!error.problems.empty());
  }
}

TEST(ConfigTest, load_reads_a_file_and_names_it) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "turnstile-config-test.toml";
  std::ofstream(file) << "[log]\nlevel = \"loud\"\n";
  try {
    Config::load(file);
    ADD_FAILURE() << "'loud' was taken for a level";
  } catch (const ConfigError& error) {
    EXPECT_TRUE(error.problems.at(0).starts_with(file.string() + ":2: log.level: ")) << error.what();
  }
  std::filesystem::remove(file);
}

TEST(ConfigTest, load_reports_wrong_settings_of_librdkafka_together_with_all_other_mistakes) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "turnstile-kafka-test.toml";
  std::ofstream(file) << "[kafka]\n\"sesion.timeout.ms\" = 9000\n\"fetch.min.bytes\" = \"many\"\n"
                         "\"enable.auto.commit\" = true\n[log]\nlevel = \"loud\"\n[topics.a]\nlimt = 3\n";
  try {
    Config::load(file);
    ADD_FAILURE() << "was taken";
  } catch (const ConfigError& error) {
    ASSERT_EQ(error.problems.size(), 5U) << error.what();
    const auto expect = [&](std::size_t i, const std::string& begin, const std::string& part) {
      EXPECT_TRUE(error.problems[i].starts_with(file.string() + begin)) << error.problems[i];
      EXPECT_NE(error.problems[i].find(part), std::string::npos) << error.problems[i];
    };
    expect(0, ":2: kafka.sesion.timeout.ms: ", "did you mean 'session.timeout.ms'?");
    expect(1, ":3: kafka.fetch.min.bytes: ", "librdkafka");
    expect(2, ":4: kafka.enable.auto.commit: ", "must be false");
    expect(3, ":6: log.level: ", "loud");
    expect(4, ":8: topics.a.limt: ", "did you mean 'limit'?");
  }
  std::filesystem::remove(file);
}

TEST(ConfigTest, load_does_not_demand_brokers) {
  const auto file = std::filesystem::path(::testing::TempDir()) / "turnstile-no-kafka-test.toml";
  std::ofstream(file) << "[log]\nlevel = \"warn\"\n";
  EXPECT_NO_THROW(Config::load(file));
  std::filesystem::remove(file);
}

TEST(ConfigTest, a_file_that_cannot_be_read_is_named_with_the_reason) {
  const auto refusal = [](const std::filesystem::path& file) -> std::string {
    try {
      Config::load(file);
    } catch (const ConfigError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal("no-such-folder/turnstile.toml"),
            "no-such-folder/turnstile.toml: cannot be read: No such file or directory; give the path of Turnstile's "
            "configuration, a TOML file");
  EXPECT_NE(refusal(::testing::TempDir()).find("it is a folder"), std::string::npos);
}

}  // namespace
}  // namespace turnstile
