// turnstile topics, on a real PostgreSQL and on consumers that read the real Kafka.

#include <gmock/gmock.h>
#include <sys/wait.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/integration/cli_database.hpp"
#include "tests/support/read_file.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

class CliTopics : public CliDatabase {
 protected:
  void SetUp() override {
    CliDatabase::SetUp();
    if (IsSkipped()) return;
    migrate();
    register_handlers();
  }
  std::string last_partition() { return sql("SELECT max(partition) FROM fence WHERE topic = 'payments'"); }
};

TEST_F(CliTopics, list_says_what_is_paused_by_whom_and_why) {
  EXPECT_THAT(cli_.run("topics", "list").out, ContainsRegex("payments +no\n"));
  const auto pause =
      cli_.run("topics", "pause", "payments", "--for", "2h", "--why", "the bank is down", "--by", "anna");
  EXPECT_EQ(pause.code, 0) << pause.err;
  EXPECT_EQ(pause.err, "");
  EXPECT_THAT(pause.out,
              AllOf(HasSubstr("topic payments is paused: "), ContainsRegex("it ends by itself at 20.* UTC")));
  EXPECT_THAT(cli_.run("topics", "list").out,
              ContainsRegex("payments +all messages +20.* UTC +20.* UTC +anna +the bank is down\n"));
  const Json json = Json::parse(cli_.run("topics", "list", "--json").out);
  EXPECT_EQ(json["topics"], Json::array({"payments"}));
  EXPECT_EQ(json["pauses"][0]["topic"], "payments");
  EXPECT_EQ(json["pauses"][0]["partition"], nullptr);
  EXPECT_EQ(json["pauses"][0]["by"], "anna");
  const auto again = cli_.run("topics", "pause", "payments");
  EXPECT_THAT(again.out, AllOf(HasSubstr("as it was since 20"), HasSubstr("by anna (the bank is down)"),
                               HasSubstr("it ends with: turnstile topics resume")));
  EXPECT_THAT(cli_.run("topics", "list").out,
              ContainsRegex("payments +all messages +20.* UTC +until resumed +[^ ]+@[^ ]+ +the bank is down\n"));
  EXPECT_THAT(cli_.run("topics", "resume", "payments").out, HasSubstr("topic payments is no longer paused"));
  EXPECT_THAT(cli_.run("topics", "list").out, ContainsRegex("payments +no\n"));
}

TEST_F(CliTopics, partitions_and_keys_have_pauses_of_their_own) {
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--partition", "3").code, 0);
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--key", "k\x1b[2J").code, 0);
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--key", "k", "--partition", "4").code, 0);
  EXPECT_THAT(cli_.run("topics", "list").out, AllOf(HasSubstr("partition 3"), HasSubstr("key \"k\" in partition 4"),
                                                    HasSubstr("key base64 "), Not(HasSubstr("\x1b"))));
  const auto whole = cli_.run("topics", "resume", "payments");
  EXPECT_EQ(whole.code, 1);
  EXPECT_THAT(whole.err, AllOf(HasSubstr("topic payments is not paused. Of this topic these are: "),
                               HasSubstr("partition 3; key \"k\" in partition 4"), HasSubstr("code=not_found")));
  EXPECT_EQ(cli_.run("topics", "resume", "payments", "--partition", "3").code, 0);
  EXPECT_EQ(cli_.run("topics", "resume", "payments", "--partition", "3").code, 1);
  EXPECT_EQ(sql("SELECT count(*) FROM pause"), "2");
  const Json json = Json::parse(cli_.run("topics", "resume", "payments", "--all", "--json").out);
  EXPECT_EQ(json["resumed"].size(), 2U);
  EXPECT_EQ(sql("SELECT count(*) FROM pause"), "0");
}

TEST_F(CliTopics, the_end_of_a_pause_leaves_the_circuit_breaker_open) {
  sql("INSERT INTO pause (topic, breaker_of, until, by_whom, why) VALUES ('payments', 'billing', now() + '1h', 'm', 'down')");
  const auto only_breaker = cli_.run("topics", "resume", "payments", "--all");
  EXPECT_EQ(only_breaker.code, 1);
  EXPECT_THAT(only_breaker.err, HasSubstr("To close the circuit breaker, give --breaker"));
  EXPECT_EQ(cli_.run("topics", "pause", "payments").code, 0);
  const auto resume = cli_.run("topics", "resume", "payments");
  EXPECT_EQ(resume.code, 0) << resume.err;
  EXPECT_THAT(resume.out, AllOf(HasSubstr("topic payments is no longer paused"),
                                HasSubstr("by the circuit breaker of group billing is still paused since")));
  EXPECT_EQ(sql("SELECT breaker_of FROM pause"), "billing");
  EXPECT_EQ(cli_.run("topics", "pause", "payments").code, 0);
  EXPECT_EQ(cli_.run("topics", "resume", "payments", "--breaker", "--all").code, 2);
  EXPECT_EQ(cli_.run("topics", "resume", "payments", "--breaker").code, 0);
  EXPECT_EQ(sql("SELECT breaker_of FROM pause"), "");
  const auto none = cli_.run("topics", "resume", "payments", "--breaker");
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.err, HasSubstr("no circuit breaker of topic payments is open"));
}

TEST_F(CliTopics, a_topic_that_nobody_has_is_paused_with_a_warning) {
  const auto pause = cli_.run("topics", "pause", "paymnts");
  EXPECT_EQ(pause.code, 0);
  EXPECT_THAT(pause.err, AllOf(HasSubstr("warning: no consumer has claimed a partition of a topic \"paymnts\""),
                               HasSubstr("there are: payments"), HasSubstr("turnstile topics resume paymnts --all")));
  EXPECT_EQ(std::count(pause.err.begin(), pause.err.end(), '\n'), 1);
  EXPECT_THAT(cli_.run("topics", "list").out, ContainsRegex("paymnts +all messages"));
  EXPECT_EQ(Json::parse(cli_.run("topics", "pause", "paymnts", "--json").out)["known"], false);
  EXPECT_EQ(cli_.run("topics", "resume", "paymnts", "--all").code, 0);
}

TEST_F(CliTopics, a_partition_that_nobody_has_is_paused_with_a_warning) {
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--partition", last_partition()).err, "");
  const auto pause = cli_.run("topics", "pause", "payments", "--partition", "99");
  EXPECT_EQ(pause.code, 0);
  EXPECT_THAT(pause.err, AllOf(HasSubstr("warning: no consumer has claimed partition 99 of topic \"payments\""),
                               HasSubstr("the highest one is " + last_partition()),
                               HasSubstr("turnstile topics resume payments --partition 99")));
  EXPECT_EQ(std::count(pause.err.begin(), pause.err.end(), '\n'), 1);
  EXPECT_EQ(cli_.run("topics", "resume", "payments", "--partition", "99").code, 0);
}

/// As an operator copies it from the terminal.
TEST_F(CliTopics, the_printed_command_ends_the_pause) {
  const std::string before = "it ends with: turnstile ";
  for (const std::string key : {"a b; echo rm -rf /", "it's $HOME", "-x", "\xff\xfe", "k\x1b[2J"}) {
    const auto pause = cli_.run("topics", "pause", "payments", "--key=" + key);
    ASSERT_EQ(pause.code, 0) << pause.err;
    const auto at = pause.out.find(before);
    ASSERT_NE(at, std::string::npos) << pause.out;
    const std::string command = "TURNSTILE_POSTGRES_URL='" + url_ + "' TURNSTILE_POSTGRES_SCHEMA=" + schema_ + " " +
                                TURNSTILE_BIN_DIR "/turnstile " + pause.out.substr(at + before.size());
    EXPECT_EQ(std::system((command.substr(0, command.find_last_not_of('\n') + 1) + " >/dev/null").c_str()), 0)
        << command;
    EXPECT_EQ(sql("SELECT count(*) FROM pause"), "0") << command;
  }
  EXPECT_THAT(cli_.run("topics", "pause", "payments", "--key", std::string(1'000, 'k')).out,
              HasSubstr("topics resume payments --key KEY, where KEY is the key that you gave"));
}

TEST_F(CliTopics, a_pause_that_has_ended_already_is_reported_as_ended) {
  const auto pause = cli_.run("topics", "pause", "payments", "--for", "1ms");
  EXPECT_EQ(pause.code, 0) << pause.err;
  EXPECT_EQ(pause.out,
            "topic payments was paused, and the pause has ended: its time is over, or another operator has ended it\n");
  EXPECT_EQ(Json::parse(cli_.run("topics", "pause", "payments", "--for", "1ms", "--json").out)["pause"], nullptr);
}

TEST_F(CliTopics, a_locked_table_names_the_session_that_locks_it) {
  pqxx::connection connection(url_);
  pqxx::work lock(connection);
  lock.exec("LOCK TABLE " + schema_ + ".pause IN ACCESS EXCLUSIVE MODE");
  for (const std::vector<std::string>& verb : {std::vector<std::string>{"list"}, {"pause", "payments"}}) {
    std::vector<std::string> words{"topics"};
    words.insert(words.end(), verb.begin(), verb.end());
    const auto busy = cli_.run_all(words);
    EXPECT_EQ(busy.code, 3) << busy.out;
    EXPECT_THAT(busy.err, AllOf(HasSubstr("pause is locked by pid " + std::to_string(connection.backendpid())),
                                HasSubstr("code=store_busy")));
  }
}

/// The connection to PostgreSQL once got descriptor 1, and with it the output.
TEST_F(CliTopics, closed_descriptors_do_not_take_part) {
  const std::string command = "TURNSTILE_POSTGRES_URL='" + url_ + "' TURNSTILE_POSTGRES_SCHEMA=" + schema_ + " " +
                              TURNSTILE_BIN_DIR "/turnstile topics ";
  EXPECT_EQ(std::system((command + "pause payments <&- >&- 2>&-").c_str()), 0);
  EXPECT_EQ(sql("SELECT count(*) FROM pause"), "1");
  EXPECT_EQ(std::system((command + "list >&- 2>/dev/full").c_str()), 0);
  EXPECT_EQ(WEXITSTATUS(std::system((command + "resume orders >&- 2>&-").c_str())), 1);
}

TEST_F(CliTopics, wrong_arguments_are_said) {
  for (const char* time : {"soon", "-1h", "0s", "9999999w", ""})
    EXPECT_EQ(cli_.run("topics", "pause", "payments", "--for", time).code, 2) << time;
  // As an empty variable of a script: it must not pause the whole topic.
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--key", "").code, 2);
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--partition", "").code, 2);
  EXPECT_EQ(cli_.run("topics", "pause").code, 2);
  EXPECT_EQ(cli_.run("topics", "pause", "").code, 2);
  EXPECT_EQ(cli_.run("topics", "pause", "payments", "--partition", "-1").code, 2);
  EXPECT_EQ(cli_.run("topics", "resume", "payments", "--partition", "1", "--all").code, 2);
  EXPECT_EQ(sql("SELECT count(*) FROM pause"), "0");
  const auto unknown = cli_.run("topics", "resume", "orders");
  EXPECT_EQ(unknown.code, 1);
  EXPECT_THAT(unknown.err, HasSubstr("topic orders is not paused; see: turnstile topics list code=not_found"));
}

TEST_F(CliTopics, the_role_of_a_consumer_may_pause_and_resume) {
  cli_.environment()["TURNSTILE_POSTGRES_URL"] = consumer_url();
  const auto pause = cli_.run("topics", "pause", "payments");
  EXPECT_EQ(pause.code, 0) << pause.err;
  EXPECT_EQ(cli_.run("topics", "resume", "payments").code, 0);
}

TEST_F(CliTopics, doctor_reports_pauses) {
  EXPECT_THAT(cli_.run("doctor").out, ContainsRegex("ok +pauses +nothing is paused"));
  cli_.run("topics", "pause", "payments", "--partition", "3", "--by", "anna", "--why", "repairs");
  EXPECT_THAT(cli_.run("doctor").out,
              ContainsRegex("warning +pauses +1 pause: payments\\[3\\] by anna since 20[^ ]+ \\(repairs\\)"));
}

/// The blocks ```sh control of docs/operations/control.md.
TEST_F(CliTopics, the_commands_of_the_page_run_as_written) {
  const std::string page = read_file(std::string(TURNSTILE_SOURCE_DIR) + "/docs/operations/control.md");
  static const std::regex block{"```sh control\n([^`]*)```"};
  std::string script = "set -eu\nexport PATH='" TURNSTILE_BIN_DIR "':\"$PATH\"\n";
  int blocks = 0;
  for (std::sregex_iterator at{page.begin(), page.end(), block}, end; at != end; ++at, ++blocks) script += (*at)[1];
  ASSERT_GE(blocks, 2);
  cli_.folder().write("control.sh", script);
  const std::string run = "cd '" + cli_.folder().path().string() + "' && TURNSTILE_POSTGRES_URL='" + url_ +
                          "' TURNSTILE_POSTGRES_SCHEMA=" + schema_ + " bash control.sh > out 2>&1";
  EXPECT_EQ(std::system(run.c_str()), 0) << read_file(cli_.folder().path() / "out");
  EXPECT_THAT(read_file(cli_.folder().path() / "out"),
              ContainsRegex("payments +all messages +20.* +the bank is down\n"));
  EXPECT_EQ(sql("SELECT count(*) FROM pause"), "0");
}

/// Two consumers of four partitions, in the order of keys.
class PausedConsumers : public ::testing::Test {
 protected:
  void SetUp() override {
    TURNSTILE_NEEDS_SERVERS();
    world_.emplace(4);
    cli_.environment()["TURNSTILE_POSTGRES_URL"] = *postgres_url();
    cli_.environment()["TURNSTILE_POSTGRES_SCHEMA"] = world_->schema();
  }
  void start() {
    for (int i = 0; i < 2; ++i)
      consumers_.push_back(world_->consumer(world_->toml("order = \"key\"", "[log]\nlevel = \"info\"\n")));
  }
  void kill_all() {
    for (const auto& consumer : consumers_) consumer.signal(SIGKILL);
    for (auto& consumer : consumers_) ASSERT_TRUE(consumer.wait(20s));
    consumers_.clear();
  }
  template <class... Arguments>
  void topics(const char* verb, const Arguments&... more) {
    const auto run = cli_.run("topics", verb, world_->topic().c_str(), more...);
    ASSERT_EQ(run.code, 0) << run.err;
  }
  /// How often the consumers have logged this.
  [[nodiscard]] int said(const std::string& text) const {
    const std::string output = world_->output();
    int count = 0;
    for (auto at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) ++count;
    return count;
  }
  [[nodiscard]] std::int64_t done() const { return world_->effects().distinct; }
  /// Each message took effect once, in the order of its key.
  void expect_all(std::int64_t n) {
    EXPECT_TRUE(eventually([&] { return done() == n && world_->caught_up(); }, 60s)) << world_->output();
    EXPECT_EQ(world_->effects().rows, n);
    EXPECT_EQ(world_->out_of_order(), 0);
  }

  std::optional<World> world_;
  Cli cli_;
  std::vector<Process> consumers_;
};

TEST_F(PausedConsumers, a_pause_survives_the_death_of_all_consumers) {
  start();
  world_->publish(100, "a");
  ASSERT_TRUE(eventually([&] { return done() == 100; }, 60s)) << world_->output();
  topics("pause", "--why", "the bank is down");
  ASSERT_TRUE(eventually([&] { return said("code=topic_paused") == 2; })) << world_->output();
  world_->publish(200, "b");
  kill_all();
  const std::string killed_at = world_->query("SELECT clock_timestamp()");
  start();
  ASSERT_TRUE(eventually([&] { return said("code=topic_paused") == 4; }, 60s)) << world_->output();
  // They have owned all partitions for 3 s: without the pause, handlers would have run.
  ASSERT_TRUE(eventually(
      [&] {
        return world_->query("SELECT bool_and(claimed_at > '" + killed_at +
                             "' AND claimed_at < clock_timestamp() - interval '3 s') FROM fence") == "t";
      },
      60s))
      << world_->output();
  const std::string resumed_at = world_->query("SELECT clock_timestamp()");
  topics("resume");
  expect_all(300);
  EXPECT_EQ(world_->query("SELECT count(*) FROM effect WHERE id LIKE 'b%' AND at < '" + resumed_at + "'"), "0");
  EXPECT_EQ(said("is no longer paused"), 2);
  EXPECT_EQ(said("code=partition_stalled"), 0);
}

TEST_F(PausedConsumers, what_a_consumer_has_in_memory_waits_too) {
  constexpr int kMessages = 120;  // 9 s of work for the four keys: the pause comes before its end
  start();
  for (int i = 0; i < kMessages; ++i)
    world_->publish("s" + std::to_string(i), "sleep:300", "k" + std::to_string(i % 4));
  ASSERT_TRUE(eventually([&] { return done() >= 4; }, 60s));
  topics("pause");
  ASSERT_TRUE(eventually([&] { return said("code=topic_paused") == 2; }));
  // Running units end: in transactions of up to some messages.
  std::int64_t before = -1;
  ASSERT_TRUE(eventually([&] {
    const std::int64_t now =
        std::stoll(world_->query("SELECT count(*) FROM effect WHERE at > clock_timestamp() - interval '2 s'"));
    before = done();
    return now == 0;
  }));
  EXPECT_LT(before, kMessages) << "it was paused too late for the test to show anything";
  topics("resume");
  expect_all(kMessages);
}

TEST_F(PausedConsumers, a_pause_ends_by_itself) {
  topics("pause", "--for", "15s");
  start();
  world_->publish(50);
  ASSERT_TRUE(eventually([&] { return said("code=topic_paused") == 2; }, 60s)) << world_->output();
  expect_all(50);
  EXPECT_EQ(world_->query("SELECT count(*) FROM effect e, pause p WHERE e.at < p.until"), "0");
  EXPECT_EQ(said("is no longer paused"), 2);
}

TEST_F(PausedConsumers, a_paused_partition_and_a_paused_key_hold_nothing_else) {
  OwnedMessage message;
  message.topic = world_->topic();
  for (std::int32_t partition = 0; partition < 4; ++partition) {
    for (int i = 0; i < 40; ++i) {
      message.partition = partition;
      message.key = "k" + std::to_string(i % 4);
      message.headers = {{"message-id", std::to_string(partition) + "-" + std::to_string(i)}};
      world_->publish(message);
    }
  }
  topics("pause", "--partition", "1");
  topics("pause", "--key", "k2");
  start();
  // Of partition 1 nothing, of the others all but a quarter.
  ASSERT_TRUE(eventually([&] { return done() == 90; }, 60s)) << world_->output();
  EXPECT_EQ(world_->query("SELECT count(*) FROM effect WHERE record_partition = 1 OR record_key = 'k2'"), "0");
  EXPECT_LE(world_->committed(0), 2) << "no offset is committed past a message that waits";
  topics("resume", "--key", "k2");
  ASSERT_TRUE(eventually([&] { return done() == 120; }, 60s)) << world_->output();
  EXPECT_EQ(world_->query("SELECT count(*) FROM effect WHERE record_partition = 1"), "0");
  topics("resume", "--partition", "1");
  expect_all(160);
}

}  // namespace
}  // namespace turnstile::test
