// The HTTP adapter on the real PostgreSQL.

#include <spdlog/logger.h>

#include <future>
#include <latch>

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/http_server.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/http/idempotent.hpp"
#include "turnstile/http/tokens.hpp"
#include "turnstile/postgres_tokens.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

class HttpOnPostgres : public PostgresTest {
 protected:
  void serve(http::Effect effect, http::Options options = {}) {
    options.log = std::make_shared<spdlog::logger>("silent");
    inbox_.emplace(store_);
    http_.server.Post("/charge", http::idempotent(*inbox_, "charge", std::move(effect), options));
    http_.start();
  }
  static void charge(const httplib::Request& request, httplib::Response& response, Context& context) {
    const Rows made = context.tx().exec("INSERT INTO effect (what) VALUES ($1) RETURNING number", request.body);
    response.status = 201;
    response.set_content("charge " + *made.at(0, 0), "text/plain");
  }
  httplib::Response post(const std::string& key, const std::string& body = "paid") {
    return send(http_.port(), "POST", "/charge", {{"Idempotency-Key", key}}, body);
  }
  std::vector<httplib::Response> post_at_once(int count) {
    std::latch together(count);
    std::vector<std::future<httplib::Response>> all;
    for (int i = 0; i < count; ++i) {
      all.push_back(std::async(std::launch::async, [&] {
        together.arrive_and_wait();
        return post("k1");
      }));
    }
    std::vector<httplib::Response> answers;
    for (auto& each : all) answers.push_back(each.get());
    return answers;
  }

  std::optional<Inbox> inbox_;
  HttpServer http_;
};

TEST_F(HttpOnPostgres, of_many_at_once_one_runs_and_the_others_are_told_so_or_answered_alike) {
  serve(charge);
  int ran = 0;
  for (const auto& response : post_at_once(16)) {
    if (response.status == 409) {
      EXPECT_EQ(response.get_header_value("Retry-After"), "1");
      continue;
    }
    EXPECT_EQ(response.status, 201) << response.body;
    EXPECT_EQ(response.body, "charge 1");
    ran += response.has_header("Idempotent-Replayed") ? 0 : 1;
  }
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(post("k1").get_header_value("Idempotent-Replayed"), "true");
  EXPECT_THAT(effects(), ElementsAre("paid"));
}

TEST_F(HttpOnPostgres, who_waits_is_answered_alike) {
  serve(charge, {.wait = 60s});
  for (const auto& response : post_at_once(16)) EXPECT_EQ(response.body, "charge 1");
  EXPECT_THAT(effects(), ElementsAre("paid"));
}

TEST_F(HttpOnPostgres, responses_of_all_bytes_are_kept) {
  std::string body(50'000, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 13);
  serve([&](const auto&, auto& response, Context&) {
    response.headers.emplace("Set-Cookie", "a=1");
    response.headers.emplace("Set-Cookie", "b='2'");
    response.set_content(body, "application/octet-stream");
  });
  const auto first = post("k1");
  auto again = post("k1");
  EXPECT_EQ(again.headers.erase("Idempotent-Replayed"), 1U);
  EXPECT_EQ(again.headers, first.headers);
  EXPECT_EQ(again.body, body);
}

TEST_F(HttpOnPostgres, a_servers_error_is_rolled_back) {
  int runs = 0;
  serve([&](const auto& request, auto& response, Context& context) {
    charge(request, response, context);
    if (++runs == 1) response.status = 502;
  });
  EXPECT_EQ(post("k1").status, 502);
  EXPECT_THAT(effects(), IsEmpty());
  EXPECT_EQ(ids(), "0");
  EXPECT_EQ(post("k1").status, 201);
  EXPECT_THAT(effects(), ElementsAre("paid"));
}

/// Turnstile's own statement stores the response after it. No outage: the client is not told to come again.
TEST_F(HttpOnPostgres, an_effect_that_leaves_another_role_has_failed) {
  int runs = 0;
  serve([&](const auto& request, auto& response, Context& context) {
    charge(request, response, context);
    if (++runs <= 2) context.tx().exec("SELECT set_config('role', 'pg_monitor', true)");
  });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(post("k1").status, 500);
  EXPECT_THAT(effects(), IsEmpty());
  EXPECT_EQ(post("k1").status, 201);
  EXPECT_THAT(effects(), ElementsAre("paid"));
}

TEST_F(HttpOnPostgres, another_body_under_the_same_key_is_refused) {
  serve(charge);
  EXPECT_EQ(post("k1", "10 cents").status, 201);
  EXPECT_EQ(post("k1", "99 cents").status, 422);
  EXPECT_THAT(effects(), ElementsAre("10 cents"));
}

TEST_F(HttpOnPostgres, any_key_is_a_row_or_a_refusal) {
  serve(charge);
  for (const auto& key : {R"("it's \"k1\"; --")"s, "\"" + std::string(255, '\'') + "\"", "$1"s})
    for (int i = 0; i < 2; ++i) EXPECT_EQ(post(key).status, 201) << key;
  EXPECT_EQ(ids(), "3");
  const std::string nul = send_bytes(http_.port(), "POST /charge HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"s +
                                                       "Idempotency-Key: a\0b\r\nContent-Length: 1\r\n\r\nx"s);
  EXPECT_THAT(nul, StartsWith("HTTP/1.1 400 "));
  EXPECT_EQ(ids(), "3");
}

TEST_F(HttpOnPostgres, a_lock_that_the_effect_waits_for_is_no_rival) {
  sql().exec("CREATE TABLE account (cents integer); INSERT INTO account VALUES (100)");
  serve([](const auto&, auto&, Context& context) { context.tx().exec("UPDATE account SET cents = cents - 10"); },
        {.wait = 0ms, .lock_timeout = 60s});
  sql().exec("BEGIN; UPDATE account SET cents = cents");
  auto blocked = std::async(std::launch::async, [&] { return post("k1"); });
  Sql look(schema_->url());
  EXPECT_TRUE(eventually([&] {
    return look.one(
               "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE 'UPDATE account SET cents = cents - 10%' "
               "AND " +
               std::to_string(sql().backend_pid()) + " = ANY (pg_blocking_pids(pid))") == "1";
  }));
  sql().exec("COMMIT");
  EXPECT_EQ(blocked.get().status, 200);
  EXPECT_EQ(sql().one("SELECT cents FROM account"), "90");
}

TEST_F(HttpOnPostgres, while_the_database_is_away_the_client_is_told_to_come_again) {
  TcpProxy proxy = proxy_to(sql());
  store_ = postgres::open_store(schema_->settings_through(proxy.port()));
  serve(charge);
  EXPECT_EQ(post("k1").status, 201);
  proxy.cut(true);
  for (const auto* key : {"k1", "k2"}) {
    const auto response = post(key);
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(response.get_header_value("Retry-After"), "1");
    EXPECT_THAT(response.body, HasSubstr("same Idempotency-Key"));
  }
  proxy.cut(false);
  EXPECT_EQ(post("k1").get_header_value("Idempotent-Replayed"), "true");
  EXPECT_EQ(post("k2").status, 201);
  EXPECT_THAT(effects(), ElementsAre("paid", "paid"));
}

TEST_F(HttpOnPostgres, an_answer_to_commit_that_is_lost_is_looked_up) {
  TcpProxy proxy = proxy_to(sql());
  store_ = postgres::open_store(schema_->settings_through(proxy.port()));
  serve([&](const auto& request, auto& response, Context& context) {
    charge(request, response, context);
    proxy.drop_next_answer();
  });
  EXPECT_EQ(post("k1").body, "charge 1");
  EXPECT_THAT(effects(), ElementsAre("paid"));
}

/// The same fixture with forms.
class FormsOnPostgres : public HttpOnPostgres {
 protected:
  void serve_forms(std::chrono::seconds valid_for) {
    tokens_ = http::postgres_tokens(valid_for, {schema_->name(), "one_time_token"});
    tokens_.subject = [](const httplib::Request& request) { return request.get_header_value("User"); };
    inbox_.emplace(store_);
    http_.server.Get("/token", http::issue_tokens(store_, tokens_));
    http_.server.Post("/form", http::once_per_token(*inbox_, "form", tokens_, charge,
                                                    {.log = std::make_shared<spdlog::logger>("silent")}));
    http_.start();
  }
  std::string issue(const std::string& user) {
    const std::string body = send(http_.port(), "GET", "/token", {{"User", user}}, "", "").body;
    return body.substr(10, 32);  // the body is {"token":"…"}
  }
  httplib::Response post_form(const std::string& user, const std::string& token) {
    return send(http_.port(), "POST", "/form", {{"User", user}}, "token=" + token, "application/x-www-form-urlencoded");
  }
  http::Tokens tokens_;
};

TEST_F(FormsOnPostgres, a_form_that_is_sent_many_times_at_once_takes_effect_once) {
  serve_forms(1h);
  const std::string token = issue("ada");
  std::vector<std::future<httplib::Response>> all;
  for (int i = 0; i < 8; ++i) all.push_back(std::async(std::launch::async, [&] { return post_form("ada", token); }));
  for (auto& each : all) EXPECT_EQ(each.get().body, "charge 1");
  EXPECT_EQ(effects().size(), 1U);
}

TEST_F(FormsOnPostgres, a_token_is_for_its_subject_and_its_time) {
  serve_forms(1h);
  const std::string token = issue("ada");
  EXPECT_EQ(post_form("grace", token).status, 410);
  EXPECT_EQ(post_form("ada", std::string(32, '0')).status, 410);
  sql().exec("UPDATE one_time_token SET expires_at = clock_timestamp() - interval '1 second'");
  EXPECT_EQ(post_form("ada", token).status, 410);
  EXPECT_EQ(ids(), "0");
  EXPECT_THAT(effects(), IsEmpty());
}

TEST_F(FormsOnPostgres, a_token_is_issued_later_while_another_session_locks_the_table) {
  auto tokens = http::postgres_tokens(1h, {schema_->name(), "one_time_token"});
  tokens.issue = [issue = tokens.issue](Transaction& tx, std::string_view subject) {
    (void)tx.exec("SET LOCAL lock_timeout = '50ms'");
    return issue(tx, subject);
  };
  http_.server.Get("/token", http::issue_tokens(store_, tokens));
  http_.start();
  Sql rival(schema_->url());
  rival.exec("BEGIN; LOCK TABLE one_time_token IN ACCESS EXCLUSIVE MODE");
  const auto response = send(http_.port(), "GET", "/token", {{"User", "ada"}}, "", "");
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.get_header_value("Retry-After"), "1");
  EXPECT_THAT(response.body, HasSubstr("request a token again later"));
  rival.exec("COMMIT");
  EXPECT_EQ(issue("ada").size(), 32U);
}

TEST_F(FormsOnPostgres, an_answer_that_is_kept_no_more_is_a_conflict) {
  serve_forms(1h);
  const std::string token = issue("ada");
  EXPECT_EQ(post_form("ada", token).status, 201);
  sql().exec("DELETE FROM response; DELETE FROM inbox");
  EXPECT_EQ(post_form("ada", token).status, 409);
  EXPECT_EQ(effects().size(), 1U);
}

TEST_F(FormsOnPostgres, old_tokens_go_as_new_ones_are_issued) {
  serve_forms(10s);
  for (int i = 0; i < 5; ++i) issue("ada");
  sql().exec("UPDATE one_time_token SET expires_at = clock_timestamp() - interval '1 minute'");
  for (int i = 0; i < 3; ++i) issue("ada");
  EXPECT_EQ(sql().one("SELECT count(*) FROM one_time_token"), "3");
}

}  // namespace
}  // namespace turnstile::test
