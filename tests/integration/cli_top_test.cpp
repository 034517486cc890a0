// turnstile top: printed once, and in a pseudo-terminal, on real Kafka and PostgreSQL.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "tests/integration/cli_domain.hpp"
#include "tests/integration/pseudo_terminal.hpp"
#include "tests/support/cli.hpp"
#include "tests/support/own_kafka.hpp"
#include "tests/support/world.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Json = nlohmann::json;

// --- what needs no server ---

TEST(CliTopUsage, without_a_terminal_it_names_once) {
  const auto run = Cli().run("top", "--kafka", "127.0.0.1:1");
  EXPECT_EQ(run.code, 2);
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err, "turnstile: top: stdin is no terminal; use --once, which prints one screen and ends code=usage\n");
}

TEST(CliTopUsage, a_screen_is_no_json) {
  const auto run = Cli().run("top", "--json", "--kafka", "127.0.0.1:1");
  EXPECT_EQ(run.code, 2);
  EXPECT_THAT(run.err, HasSubstr("--once --json"));
}

TEST(CliTopUsage, wrong_times_and_missing_servers_are_refused) {
  EXPECT_THAT(Cli().run("top", "--once", "--stall-after", "soon").err, HasSubstr("write 500ms, 30s or 2m"));
  const auto nothing = Cli().run("top", "--once");
  EXPECT_EQ(nothing.code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no broker is named"));
}

TEST(CliTopUsage, a_terminal_that_can_show_no_screen_is_refused) {
  const TemporaryFolder folder;
  PseudoTerminal top({"top", "--kafka", "127.0.0.1:1"}, {{"TERM", "dumb"}}, folder);
  EXPECT_TRUE(top.shows("use --once"));
  EXPECT_EQ(top.ends(), 2);
  EXPECT_TRUE(top.is_restored());
}

/// A port that accepts connections and never answers.
class SilentServer {
 public:
  SilentServer() : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(socket_, 64) != 0 ||
        getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0)
      throw std::runtime_error("no port is free");
    port_ = ntohs(address.sin_port);
  }
  ~SilentServer() { close(socket_); }
  SilentServer(const SilentServer&) = delete;
  SilentServer& operator=(const SilentServer&) = delete;
  [[nodiscard]] std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  int socket_, port_ = 0;
};

TEST(CliTopUsage, servers_that_do_not_answer_hold_up_neither_the_screen_nor_its_end) {
  const SilentServer silent;
  const TemporaryFolder folder;
  PseudoTerminal top(
      {"top", "payments", "--kafka", silent.address(), "--postgres", "postgresql://app@" + silent.address() + "/app"},
      {}, folder);
  EXPECT_TRUE(top.shows("Kafka asking, token log asking, PostgreSQL asking"));
  top.press("s");
  EXPECT_TRUE(top.shows("by rate", 5s));
  EXPECT_TRUE(top.shows("Kafka UNAVAILABLE")) << top.screen();
  EXPECT_TRUE(top.shows("PostgreSQL UNAVAILABLE")) << top.screen();
  top.press("q");
  EXPECT_EQ(top.ends(5s), 0);
  EXPECT_TRUE(top.is_restored());
}

// --- on a Kafka that stops answering ---

TEST(CliTopKafka, a_token_log_that_does_not_answer_is_unavailable) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const OwnKafka kafka;
  kafka::open_limiters({{"bootstrap.servers", kafka.servers()}}, {.name = "log"}, {.client = "c", .lease = 2s},
                       make_logger({.level = "off"}))
      ->wait_until_joined(30s);
  const TemporaryFolder folder;
  PseudoTerminal top({"top", "payments", "--kafka", kafka.servers(), "--topic", "log"}, {}, folder);
  ASSERT_TRUE(top.shows("token log ok")) << top.screen();
  kafka.freeze();
  EXPECT_TRUE(top.shows("token log UNAVAILABLE", 60s)) << top.screen();
  kafka.thaw();
  EXPECT_TRUE(top.shows("token log ok", 60s)) << top.screen();
}

/// A look-up of many topics takes longer than a single look waits for an answer.
TEST(CliTopKafka, once_waits_while_kafka_makes_progress) {
  if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
  const OwnKafka kafka;
  std::vector<std::string> words{"top", "--once", "--json", "--kafka", kafka.servers()};
  for (int i = 0; i < 2'000; ++i) words.push_back("no-such-" + std::to_string(i));
  const TemporaryFolder folder;
  CliProcess top(words, {}, folder.path());
  // Each look-up waits up to 3 s: a busy machine may answer none between two stops. All of them together take more than the
  // 10 s without progress that end it.
  for (int i = 0; i < 11; ++i) {
    std::this_thread::sleep_for(i == 0 ? 600ms : 300ms);
    kafka.freeze();
    std::this_thread::sleep_for(1s);
    kafka.thaw();
  }
  const auto end = top.wait(120s);
  EXPECT_EQ(end.code, 0) << end.err;
  EXPECT_EQ(Json::parse(end.out, nullptr, false)["sources"]["kafka"]["state"], "ok") << end.out.substr(0, 500);
}

// --- on Kafka and PostgreSQL ---

class CliTop : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kafka_servers().empty() || !postgres_url()) GTEST_SKIP() << "the servers are not named; run ./dev test";
    world_.emplace(WorldOptions{.partitions = 3});
    cli_.folder().write("turnstile.toml", world_->toml());
  }

  std::shared_ptr<TokenDomain> join(const std::string& client) {
    auto domain = kafka::open_limiters({{"bootstrap.servers", kafka_servers()}}, {.name = world_->topic() + ".tokens"},
                                       {.client = client, .lease = 2s}, make_logger({.level = "off"}));
    EXPECT_TRUE(domain->wait_until_joined(30s));
    return domain;
  }

  template <class... Arguments>
  Json once(const Arguments&... arguments) {
    const auto run = cli_.run("top", "--once", "--json", arguments...);
    EXPECT_EQ(run.code, 0) << run.err;
    return Json::parse(run.out, nullptr, false);
  }
  std::unique_ptr<PseudoTerminal> live(int columns = 80, int rows = 24) {
    return std::make_unique<PseudoTerminal>(std::vector<std::string>{"top", "--stall-after", "2s"}, cli_.environment(),
                                            cli_.folder(), columns, rows);
  }

  std::optional<World> world_;
  Cli cli_;
};

TEST_F(CliTop, once_names_what_nobody_reads) {
  const auto published = world_->publish(20);
  const auto run = cli_.run("top", "--once", "--stall-after", "2s");
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_THAT(run.out, AllOf(StartsWith("turnstile top  group " + world_->topic()),
                             HasSubstr("Kafka ok, token log off, PostgreSQL ok"), HasSubstr("no limits")));
  EXPECT_THAT(run.out, ContainsRegex(world_->topic() + "\\[[0-2]\\] +[0-9]+ behind, no progress for [2-9]"));
  EXPECT_THAT(run.out, ContainsRegex(world_->topic() + " +3 +0.0 +" + std::to_string(published) + " +[1-3] +0\n"));
  const Json json = once("--stall-after", "2s");
  EXPECT_EQ(json["topics"][0]["topic"], world_->topic());
  EXPECT_EQ(json["topics"][0]["lag"], published);
  EXPECT_EQ(json["stalled"].size(), json["topics"][0]["stalled"]);
  EXPECT_EQ(json["stalled"][0]["committed"], nullptr);
  EXPECT_EQ(json["sources"]["token_log"]["state"], "off");
  EXPECT_EQ(json["limiters"], Json::array());
  EXPECT_EQ(json["claims"]["parked"], 0);
}

TEST_F(CliTop, once_shows_a_consumer_its_dead_letters_and_its_limiter) {
  world_->publish("bad", "throw");
  auto consumer = world_->consumer(world_->toml("limit = 2"), {{"EFFECT_MS", "20"}});
  world_->publish(600);
  EXPECT_TRUE(eventually([&] { return once()["topics"][0]["rate"] > 0; })) << world_->output();
  ASSERT_TRUE(eventually([&] { return world_->caught_up() && world_->query("SELECT count(*) FROM dead") == "1"; }))
      << world_->output();
  const Json json = once();
  EXPECT_EQ(json["topics"][0]["lag"], 0);
  EXPECT_EQ(json["topics"][0]["dead_letters"], 1);
  EXPECT_EQ(json["dead_letters"],
            Json::parse(R"([{"group":")" + world_->topic() + R"(","topic":")" + world_->topic() + R"(","count":1}])"));
  EXPECT_EQ(json["stalled"], Json::array());
  EXPECT_EQ(json["limiters"][0]["limiter"], world_->topic());
  EXPECT_EQ(json["limiters"][0]["limit"], 2);
  EXPECT_EQ(json["outbox"]["waiting"], 0);
  EXPECT_EQ(json["sources"]["token_log"]["state"], "ok");
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

TEST_F(CliTop, a_topic_that_only_the_database_knows_is_shown_once_it_was_read) {
  auto consumer = world_->consumer(world_->toml());
  world_->publish(5);
  ASSERT_TRUE(eventually([&] { return world_->caught_up(); })) << world_->output();
  std::string toml = world_->toml();
  cli_.folder().write("turnstile.toml", toml.substr(0, toml.find("[topics.")));
  // The first sample may come before the database has answered.
  EXPECT_TRUE(eventually([&] { return once()["topics"].size() == 1; }));
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
}

TEST_F(CliTop, once_finds_a_stall_of_a_topic_that_only_the_database_knows) {
  auto consumer = world_->consumer(world_->toml());
  world_->publish(5);
  ASSERT_TRUE(eventually([&] { return world_->caught_up(); })) << world_->output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(20s), 0);
  world_->publish(20);
  std::string toml = world_->toml();
  cli_.folder().write("turnstile.toml", toml.substr(0, toml.find("[topics.")));
  const Json json = once("--stall-after", "3s");
  ASSERT_EQ(json["topics"].size(), 1U);
  EXPECT_GT(json["topics"][0]["lag"], 0);
  EXPECT_FALSE(json["stalled"].empty());
}

TEST_F(CliTop, one_unavailable_source_is_named_and_the_others_are_shown) {
  world_->publish(5);
  auto run =
      cli_.run("top", "--once", "--json", "--stall-after", "1s", "--postgres", "postgresql://app@127.0.0.1:1/app");
  EXPECT_EQ(run.code, 3);
  Json json = Json::parse(run.out, nullptr, false);
  EXPECT_EQ(json["sources"]["postgres"]["state"], "unavailable");
  EXPECT_THAT(json["sources"]["postgres"]["why"].get<std::string>(), HasSubstr("127.0.0.1"));
  EXPECT_GT(json["topics"][0]["lag"], 0);
  EXPECT_EQ(json["claims"], nullptr);
  run = cli_.run("top", "--once", "--kafka", "127.0.0.1:1");
  EXPECT_EQ(run.code, 3);
  EXPECT_THAT(run.out, AllOf(HasSubstr("Kafka UNAVAILABLE"), HasSubstr("PostgreSQL ok"), HasSubstr("dead letters 0")));
}

TEST_F(CliTop, a_topic_that_does_not_exist_is_named) {
  const Json json = once("no-such-topic");
  EXPECT_EQ(json["topics"][0]["topic"], "no-such-topic");
  EXPECT_EQ(json["topics"][0]["exists"], false);
}

TEST_F(CliTop, a_screen_shows_topics_and_limiters_and_obeys_its_keys) {
  world_->publish(20);
  const auto domain = join("billing");
  const auto psp = domain->open("psp", 4);
  const auto taken = take(*psp, 3);
  const auto top = live();
  EXPECT_TRUE(top->shows(world_->topic())) << top->screen();
  EXPECT_TRUE(top->shows("billing@")) << top->screen();
  EXPECT_TRUE(top->shows("STALLED: ")) << top->screen();
  EXPECT_THAT(top->screen(), ContainsRegex("\npsp +4 +[34] +[0-9] +[0-9]\n"));
  EXPECT_TRUE(top->shows("PostgreSQL ok")) << top->screen();

  top->press("s");
  EXPECT_TRUE(top->shows("by rate"));
  top->press("m");
  EXPECT_TRUE(eventually([&] { return top->screen().find("billing@") == std::string::npos; }));
  top->press("h");
  EXPECT_TRUE(top->shows("change a limit"));
  top->press("x");
  EXPECT_TRUE(top->shows("q quit"));
  top->press("p");
  EXPECT_TRUE(top->shows("PAUSED"));
  const auto paused = top->screen();
  top->press("p");
  EXPECT_TRUE(eventually([&] { return top->screen().find("PAUSED") == std::string::npos; })) << paused;

  top->press("lpsp\r");
  EXPECT_TRUE(top->shows("psp (now 4): new limit")) << top->screen();
  top->press("7\r");
  EXPECT_TRUE(top->shows("set psp (now 4) to 7, for all processes? y/n")) << top->screen();
  EXPECT_EQ(psp->state().limit, 4) << "not before it is confirmed";
  top->press("y");
  EXPECT_TRUE(top->shows("psp: limit 7 in effect, set by an operator")) << top->screen();
  EXPECT_TRUE(eventually([&] { return psp->state().limit == 7; }));
  EXPECT_TRUE(top->shows("psp (set)")) << top->screen();

  top->press("q");
  EXPECT_EQ(top->ends(), 0);
  EXPECT_TRUE(top->is_restored());
}

TEST_F(CliTop, a_resized_terminal_is_drawn_anew) {
  world_->publish(5);
  const auto top = live();
  EXPECT_TRUE(top->shows(world_->topic())) << top->screen();
  top->resize(20, 5);
  EXPECT_TRUE(top->shows("1 topic: lag ")) << top->screen();
  for (int i = 0; i < 20; ++i) top->resize(20 + i * 5, 5 + i);
  top->resize(80, 24);
  EXPECT_TRUE(top->shows("RATE/S")) << top->screen();
  EXPECT_TRUE(top->shows("outbox: ")) << top->screen();
  top->press("q");
  EXPECT_EQ(top->ends(), 0);
  EXPECT_TRUE(top->is_restored());
}

/// Once a missing token log was looked up without a rest, at half a core.
TEST_F(CliTop, what_is_missing_is_not_looked_up_in_a_busy_loop) {
  const auto top = live();
  EXPECT_TRUE(top->shows("no limits")) << top->screen();
  std::set<std::string> times;
  EXPECT_TRUE(eventually([&] {
    times.insert(top->screen().substr(0, 80));
    return times.size() == 6;
  }));
  top->press("q");
  EXPECT_EQ(top->ends(), 0);
  EXPECT_LT(top->cpu_time(), 1s);
}

TEST_F(CliTop, signals_restore_the_terminal) {
  for (const int number : {SIGINT, SIGTERM}) {
    const auto top = live();
    EXPECT_TRUE(top->shows(world_->topic())) << top->screen();
    EXPECT_FALSE(top->is_restored());
    top->signal(number);
    EXPECT_EQ(top->ends(), 0);
    EXPECT_TRUE(top->is_restored()) << number;
  }
}

TEST_F(CliTop, control_z_gives_the_terminal_back_and_takes_it_again) {
  const auto top = live();
  EXPECT_TRUE(top->shows("RATE/S")) << top->screen();
  top->signal(SIGTSTP);
  ASSERT_TRUE(top->stops());
  EXPECT_TRUE(top->is_restored());
  top->signal(SIGCONT);
  EXPECT_TRUE(eventually([&] { return !top->is_restored(); }));
  EXPECT_TRUE(top->shows("RATE/S")) << top->screen();
  top->press("q");
  EXPECT_EQ(top->ends(), 0);
  EXPECT_TRUE(top->is_restored());
}

}  // namespace
}  // namespace turnstile::test
