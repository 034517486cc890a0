// examples/charge_form as a process: forms that are sent twice, forms that are sent at the same time, and a process
// that is killed between the effect and the answer.

#include <gmock/gmock.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <latch>

#include "tests/support/cli.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/http_server.hpp"
#include "tests/support/postgres_schema.hpp"
#include "tests/support/process.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

class ChargeForm : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!postgres_url()) GTEST_SKIP() << kNoPostgres;
    server_.emplace(*postgres_url());
    server_->exec("CREATE DATABASE " + database_);
    start({});
  }
  void TearDown() override {
    process_.reset();
    if (!server_) return;
    EXPECT_TRUE(eventually([&] {
      return server_->one("SELECT count(*) FROM pg_stat_activity WHERE datname = '" + database_ + "'") == "0";
    }));
    server_->exec("DROP DATABASE " + database_);
  }
  /// Starts a process in place of the running process. `failpoint` is the step at which it is killed.
  void start(const std::string& failpoint) {
    process_.reset();
    const std::string output = folder_.path() / ("output-" + std::to_string(++starts_));
    process_.emplace(std::string(TURNSTILE_BIN_DIR) + "/charge_form", std::vector<std::string>{"0"},
                     std::map<std::string, std::string>{
                         {"TURNSTILE_POSTGRES_URL", with_parameter(*postgres_url(), "dbname", database_)},
                         {"TURNSTILE_FAILPOINT", failpoint}},
                     output);
    std::string line;
    ASSERT_TRUE(eventually([&] {
      std::ifstream in(output);
      return std::getline(in, line) && !in.eof();
    })) << line;
    ASSERT_TRUE(line.starts_with("http://127.0.0.1:")) << line;
    port_ = std::stoi(line.substr(line.rfind(':') + 1));
  }
  httplib::Response get(const std::string& path) { return send(port_, "GET", path, {}, "", ""); }
  httplib::Response post_form(const std::string& token, const std::string& cents = "1250") {
    return send(port_, "POST", "/form", {}, "token=" + token + "&cents=" + cents, "application/x-www-form-urlencoded");
  }
  httplib::Response post(const std::string& key, const std::string& cents = "1250") {
    return send(port_, "POST", "/charge", {{"Idempotency-Key", key}}, cents, "application/json");
  }
  /// The token from the hidden field of the page.
  std::string token() {
    const std::string page = get("/").body, before = "name=token value=";
    const auto at = page.find(before);
    EXPECT_NE(at, std::string::npos) << page;
    return at == std::string::npos ? "" : page.substr(at + before.size(), 32);
  }
  std::string charges() { return get("/charges").body; }
  /// Sends the form while the process dies at the failpoint, then sends it again to a process that lives.
  template <class Send>
  httplib::Response over_a_death(const std::string& failpoint, const Send& once) {
    start(failpoint + ":1");
    EXPECT_EQ(once().status, 0) << "the process should have died before it answered";
    EXPECT_EQ(process_->wait(30s), -SIGKILL);
    start({});
    return once();
  }

  const std::string database_ = "charge_form_" + std::to_string(::getpid());
  TemporaryFolder folder_;
  std::optional<Sql> server_;
  std::optional<Process> process_;
  int starts_ = 0;
  int port_ = 0;
};

TEST_F(ChargeForm, a_form_that_is_sent_twice_charges_once) {
  const std::string form = token();
  const auto first = post_form(form), again = post_form(form);
  EXPECT_EQ(first.status, 201) << first.body;
  EXPECT_EQ(again.status, 201);
  EXPECT_EQ(again.body, first.body);
  EXPECT_EQ(again.get_header_value("Idempotent-Replayed"), "true");
  EXPECT_EQ(post_form(form, "9999").status, 422);
  EXPECT_EQ(charges(), "charges: 1, cents: 1250\n");
  EXPECT_EQ(post_form(token()).status, 201);
  EXPECT_EQ(charges(), "charges: 2, cents: 2500\n");
}

TEST_F(ChargeForm, a_form_that_is_sent_many_times_at_once_charges_once) {
  const std::string form = token();
  constexpr int kClicks = 8;
  std::latch together(kClicks);
  std::vector<std::future<httplib::Response>> clicks;
  for (int i = 0; i < kClicks; ++i) {
    clicks.push_back(std::async(std::launch::async, [&] {
      together.arrive_and_wait();
      return post_form(form);
    }));
  }
  for (auto& click : clicks) EXPECT_EQ(click.get().body, "{\"charge\": 1, \"cents\": 1250}\n");
  EXPECT_EQ(charges(), "charges: 1, cents: 1250\n");
}

TEST_F(ChargeForm, a_request_that_is_sent_twice_charges_once) {
  EXPECT_EQ(post("order-17").status, 201);
  EXPECT_EQ(post("order-17").get_header_value("Idempotent-Replayed"), "true");
  EXPECT_EQ(post("order-17", "9999").status, 422);
  EXPECT_EQ(post("order-18", "a lot").status, 400);
  EXPECT_EQ(charges(), "charges: 1, cents: 1250\n");
}

TEST_F(ChargeForm, killed_between_the_effect_and_the_answer_it_answers_what_was_kept) {
  const auto by_key = over_a_death("once-after-commit", [&] { return post("order-17"); });
  EXPECT_EQ(by_key.status, 201);
  EXPECT_EQ(by_key.body, "{\"charge\": 1, \"cents\": 1250}\n");
  EXPECT_EQ(by_key.get_header_value("Idempotent-Replayed"), "true");
  const std::string form = token();
  const auto by_token = over_a_death("once-after-commit", [&] { return post_form(form); });
  EXPECT_EQ(by_token.body, "{\"charge\": 2, \"cents\": 1250}\n");
  EXPECT_EQ(charges(), "charges: 2, cents: 2500\n");
}

TEST_F(ChargeForm, killed_before_the_effect_is_committed_it_runs_again) {
  const std::string form = token();
  for (const auto& response : {over_a_death("once-before-commit", [&] { return post("order-17"); }),
                               over_a_death("once-before-commit", [&] { return post_form(form); })}) {
    EXPECT_EQ(response.status, 201);
    EXPECT_FALSE(response.has_header("Idempotent-Replayed"));
  }
  EXPECT_EQ(charges(), "charges: 2, cents: 2500\n");
}

TEST_F(ChargeForm, ends_when_it_is_asked_to) {
  process_->signal(SIGTERM);
  EXPECT_EQ(process_->wait(30s), 0);
}

}  // namespace
}  // namespace turnstile::test
