// The HTTP adapter with the in-memory store: a real cpp-httplib server, and what its clients see.

#include <gmock/gmock.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <latch>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/http_server.hpp"
#include "turnstile/error.hpp"
#include "turnstile/http/idempotent.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using namespace std::string_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kKey = "Idempotency-Key";
constexpr const char* kReplayed = "Idempotent-Replayed";

/// The endpoint POST /charge with the effect `effect`. It counts how often the effect has run.
class Http : public ::testing::Test {
 protected:
  void serve(http::Effect effect, http::Options options = {}) {
    options.log = std::make_shared<spdlog::logger>("test", log_.sink());
    http_.server.Post("/charge", http::idempotent(
                                     inbox_, "charge",
                                     [this, effect](const auto& request, auto& response, Context& context) {
                                       ++runs_;
                                       effect(request, response, context);
                                     },
                                     options));
    http_.start();
  }
  httplib::Response post(const std::string& key, const std::string& body = "10 cents",
                         const httplib::Headers& more = {}, const std::string& target = "/charge",
                         const std::string& content_type = "text/plain") {
    auto headers = more;
    headers.emplace(kKey, key);
    return send(http_.port(), "POST", target, headers, body, content_type);
  }
  static void charge(const httplib::Request& request, httplib::Response& response, Context& context) {
    context.tx().exec("INSERT INTO charge (cents) VALUES ($1)", request.body);
    response.status = 201;
    response.set_content("charged " + request.body, "text/plain");
  }
  /// Expects a problem document with this status that contains the remedy.
  static void expect_problem(const httplib::Response& response, int status, const std::string& detail) {
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_EQ(response.get_header_value("Content-Type"), "application/problem+json");
    EXPECT_THAT(response.body, AllOf(HasSubstr("\"status\":" + std::to_string(status)), HasSubstr(detail)));
  }
  [[nodiscard]] std::size_t charges() const {
    const auto statements = store_->committed();
    return static_cast<std::size_t>(
        std::count_if(statements.begin(), statements.end(), [](const auto& s) { return s.sql.starts_with("INSERT"); }));
  }

  const std::shared_ptr<testing::MemoryInbox> store_ = std::make_shared<testing::MemoryInbox>();
  Inbox inbox_{store_};
  std::atomic<int> runs_ = 0;
  test::CapturedLog log_;
  HttpServer http_;
};

std::vector<std::string> values_of(const httplib::Response& response, const std::string& name) {
  std::vector<std::string> values;
  for (std::size_t i = 0; i < response.get_header_value_count(name); ++i) {
    const auto [from, to] = response.headers.equal_range(name);
    values.push_back(std::next(from, static_cast<std::ptrdiff_t>(i))->second);
  }
  return values;
}

TEST_F(Http, a_request_that_is_sent_again_takes_effect_once_and_is_answered_alike) {
  serve(charge);
  const auto first = post("k1");
  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(first.body, "charged 10 cents");
  EXPECT_FALSE(first.has_header(kReplayed));
  for (const auto* spelling : {"k1", "\"k1\""}) {
    const auto again = post(spelling);
    EXPECT_EQ(again.status, 201);
    EXPECT_EQ(again.body, first.body);
    EXPECT_EQ(again.get_header_value("Content-Type"), "text/plain");
    EXPECT_EQ(again.get_header_value(kReplayed), "true");
  }
  EXPECT_EQ(post("k2").status, 201);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(charges(), 2U);
}

TEST_F(Http, a_replay_is_bit_for_bit_the_same) {
  std::string body(20'000, '\0');
  for (std::size_t i = 0; i < body.size(); ++i) body[i] = static_cast<char>(i * 7);
  serve([&](const auto&, auto& response, Context&) {
    response.status = 207;
    response.headers.emplace("Set-Cookie", "b=2");
    response.headers.emplace("Set-Cookie", "a=1");
    response.headers.emplace("Location", "/charge/17?x=%20y");
    response.set_content(body, "application/octet-stream");
  });
  http_.server.set_default_headers({{"Server", "test"}});
  const auto first = post("k1");
  auto again = post("k1");
  EXPECT_EQ(first.body, body);
  EXPECT_EQ(again.body, body);
  EXPECT_EQ(values_of(again, "Set-Cookie"), values_of(first, "Set-Cookie"));
  EXPECT_EQ(values_of(again, "Set-Cookie").size(), 2U);
  EXPECT_EQ(values_of(again, "Server").size(), 1U) << "what the server adds to all responses is added once";
  EXPECT_EQ(again.headers.erase(kReplayed), 1U);
  EXPECT_EQ(again.headers, first.headers);
  EXPECT_EQ(again.status, 207);
}

TEST_F(Http, without_a_status_and_a_body_it_is200_and_empty) {
  serve([](const auto&, auto&, Context&) {});
  for (int i = 0; i < 2; ++i) {
    const auto response = post("k1");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "");
  }
  EXPECT_EQ(runs_, 1);
}

TEST_F(Http, what_the_client_did_wrong_is_kept) {
  serve([](const auto&, auto& response, Context&) {
    response.status = 402;
    response.set_content("no money", "text/plain");
  });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(post("k1").status, 402);
  EXPECT_EQ(runs_, 1);
}

/// cpp-httplib would send each range of the response, as often as the client asks for it.
TEST_F(Http, ranges_are_ignored) {
  serve(charge);
  std::string many = "bytes=0-";
  for (int i = 0; i < 1'000; ++i) many += ",0-";
  for (const auto& range : {std::string("bytes=0-3"), many}) {
    const auto response = post("key-" + std::to_string(range.size()), "10 cents", {{"Range", range}});
    EXPECT_EQ(response.status, 201);
    EXPECT_EQ(response.body, "charged 10 cents");
  }
}

TEST_F(Http, without_a_key_that_can_be_read_nothing_runs) {
  serve(charge);
  expect_problem(send(http_.port(), "POST", "/charge", {}, "x"), 400, "Idempotency-Key is missing; send a new key");
  expect_problem(send(http_.port(), "POST", "/charge", {{kKey, "a"}, {kKey, "b"}}, "x"), 400, "more than once");
  expect_problem(post("\"\""), 400, "is empty");
  expect_problem(post("a b"), 400, "in quotes");
  expect_problem(post(std::string(256, 'k')), 400, "256 bytes");
  expect_problem(post("\"never closed"), 400, "RFC 8941");
  EXPECT_EQ(post(std::string(255, 'k')).status, 201);
  EXPECT_EQ(runs_, 1);
}

TEST_F(Http, a_key_with_quotes_is_a_key_and_one_with_nul_is_not) {
  serve(charge);
  EXPECT_EQ(post(R"("it's \"k1\"")").status, 201);
  EXPECT_EQ(post(R"("it's \"k1\"")").get_header_value(kReplayed), "true");
  EXPECT_EQ(post(R"("it's k1")").get_header_value(kReplayed), "");
  for (const auto& key : {"a\0b"s, "\"a\0b\""s, "a%00b"s, "\"\x01\""s}) {
    const std::string answer = send_bytes(http_.port(),
                                          "POST /charge HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                                          "Idempotency-Key: " +
                                              key + "\r\nContent-Length: 1\r\n\r\nx");
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 400 ")) << key;
  }
  EXPECT_EQ(runs_, 2);
}

TEST_F(Http, the_key_with_another_request_is_refused) {
  serve(charge);
  EXPECT_EQ(post("k1", "10 cents", {}, "/charge?to=ada").status, 201);
  const auto refused = [&](const httplib::Response& response) {
    expect_problem(response, 422, "use a new key for each operation");
  };
  refused(post("k1", "99 cents", {}, "/charge?to=ada"));
  refused(post("k1", "10 cents", {}, "/charge?to=grace"));
  refused(post("k1", "10 cents", {}, "/charge"));
  refused(post("k1", "10 cents", {}, "/charge?to=ada", "text/csv"));
  EXPECT_EQ(post("k1", "10 cents", {}, "/charge?to=ada").get_header_value(kReplayed), "true");
  EXPECT_EQ(runs_, 1);
}

TEST_F(Http, of_a_form_the_parts_count_and_not_its_boundary) {
  serve([](const auto& request, auto& response, Context&) {
    response.set_content(request.get_file_value("cents").content, "text/plain");
  });
  const auto form = [&](const std::string& boundary, const std::string& cents) {
    return post("k1",
                "--" + boundary + "\r\nContent-Disposition: form-data; name=\"cents\"\r\n\r\n" + cents + "\r\n--" +
                    boundary + "--\r\n",
                {}, "/charge", "multipart/form-data; boundary=" + boundary);
  };
  EXPECT_EQ(form("one", "10").body, "10");
  EXPECT_EQ(form("other", "10").get_header_value(kReplayed), "true");
  expect_problem(form("one", "99"), 422, "was used for a different request before");
}

TEST_F(Http, the_servers_errors_are_rolled_back_and_run_again) {
  serve([&](const auto& request, auto& response, Context& context) {
    charge(request, response, context);
    if (runs_ == 1) response.status = 503;
    if (runs_ == 2) throw std::runtime_error("the card's issuer is away");
  });
  http_.server.set_exception_handler([](const auto&, auto& response, const auto&) { response.status = 500; });
  const auto first = post("k1");
  EXPECT_EQ(first.status, 503);
  EXPECT_EQ(first.body, "charged 10 cents") << "the effect's own answer";
  const auto second = post("k1");
  EXPECT_EQ(second.status, 500);
  EXPECT_EQ(second.body, "") << "what the effect had begun to say";
  EXPECT_EQ(charges(), 0U);
  EXPECT_EQ(post("k1").status, 201);
  EXPECT_EQ(post("k1").get_header_value(kReplayed), "true");
  EXPECT_EQ(charges(), 1U);
}

TEST_F(Http, an_effect_that_is_run_again_has_an_empty_response) {
  serve([&](const auto& request, auto& response, Context& context) {
    EXPECT_TRUE(response.headers.empty() && response.body.empty());
    charge(request, response, context);
    if (runs_ == 1) store_->fail_next_commit(testing::CommitFault::in_doubt_lost);
  });
  EXPECT_EQ(post("k1").status, 201);
  EXPECT_EQ(runs_, 2);
  EXPECT_EQ(charges(), 1U);
}

TEST_F(Http, while_a_rival_runs_the_others_are_told_to_come_again) {
  std::latch inside(1);
  std::promise<void> go;
  serve([&](const auto& request, auto& response, Context& context) {
    inside.count_down();
    go.get_future().wait();
    charge(request, response, context);
  });
  auto slow = std::async(std::launch::async, [&] { return post("k1"); });
  inside.wait();
  const auto rival = post("k1");
  expect_problem(rival, 409, "send the request again with the same Idempotency-Key later");
  EXPECT_EQ(rival.get_header_value("Retry-After"), "1");
  go.set_value();
  EXPECT_EQ(slow.get().status, 201);
  EXPECT_EQ(post("k1").get_header_value(kReplayed), "true");
  EXPECT_EQ(runs_, 1);
}

TEST_F(Http, who_waits_for_a_rival_gets_its_answer) {
  std::latch inside(1);
  std::promise<void> go;
  serve(
      [&](const auto& request, auto& response, Context& context) {
        inside.count_down();
        go.get_future().wait();
        charge(request, response, context);
      },
      {.wait = 60s});
  std::vector<std::future<httplib::Response>> all;
  for (int i = 0; i < 4; ++i) all.push_back(std::async(std::launch::async, [&] { return post("k1"); }));
  inside.wait();
  go.set_value();
  int replayed = 0;
  for (auto& each : all) {
    const auto response = each.get();
    EXPECT_EQ(response.body, "charged 10 cents");
    replayed += response.has_header(kReplayed) ? 1 : 0;
  }
  EXPECT_EQ(replayed, 3);
  EXPECT_EQ(runs_, 1);
}

TEST_F(Http, a_key_belongs_to_who_sent_it) {
  serve([](const auto& request, auto& response,
           Context&) { response.set_content("for " + request.get_header_value("User"), "text/plain"); },
        {.scope = [](const httplib::Request& request) { return request.get_header_value("User"); }});
  EXPECT_EQ(post("k1", "x", {{"User", "ada"}}).body, "for ada");
  EXPECT_EQ(post("k1", "x", {{"User", "grace"}}).body, "for grace");
  EXPECT_EQ(post("k1", "x", {{"User", ""}}).body, "for ");
  EXPECT_EQ(post("k1", "x", {{"User", "ada"}}).body, "for ada");
  EXPECT_EQ(runs_, 3);
  EXPECT_FALSE(inbox_.check("charge", "k1")) << "a key without a user is nobody's";
}

TEST_F(Http, a_large_body_is_refused) {
  serve([](const auto&, auto& response, Context&) { response.status = 201; });
  expect_problem(post("k1", std::string(10'000'000, 'x')), 413, "10000000 bytes, more than the maximum of 1048576");
  EXPECT_EQ(runs_, 0);
  EXPECT_EQ(post("k1", std::string(1024 * 1024, 'x')).status, 201) << "the key was not used up";
}

TEST_F(Http, the_servers_own_bound_comes_first) {
  serve(charge, {.max_body = 100'000'000});
  http_.server.set_payload_max_length(1'000);
  EXPECT_EQ(post("k1", std::string(10'000, 'x')).status, 413);
  EXPECT_EQ(runs_, 0);
}

TEST_F(Http, a_response_that_cannot_be_kept_is_rolled_back_and_said_in_the_log) {
  serve(
      [&](const auto& request, auto& response, Context& context) {
        charge(request, response, context);
        if (request.body == "large") response.set_content(std::string(1'000, 'x'), "text/plain");
        if (request.body == "streamed") {
          response.set_content_provider(
              1, "text/plain", [](std::size_t, std::size_t, httplib::DataSink& sink) { return sink.write("x", 1); });
        }
      },
      {.max_response = 1'000});
  expect_problem(post("k1", "large"), 500, "took no effect");
  expect_problem(post("k2", "streamed"), 500, "took no effect");
  EXPECT_THAT(log_.str(), AllOf(HasSubstr("handler 'charge', POST /charge"), HasSubstr("Options::max_response (1000)"),
                                HasSubstr("content provider")));
  EXPECT_EQ(charges(), 0U);
  EXPECT_EQ(post("k1", "small").status, 201) << "nothing was kept";
}

TEST_F(Http, while_the_store_is_away_nothing_runs_and_the_log_says_so_once) {
  serve(charge);
  store_->set_unavailable(true);
  for (int i = 0; i < 3; ++i) {
    const auto response = post("k1");
    expect_problem(response, 503, "send the request again with the same Idempotency-Key");
    EXPECT_EQ(response.get_header_value("Retry-After"), "1");
  }
  store_->set_unavailable(false);
  EXPECT_EQ(post("k1").status, 201);
  EXPECT_EQ(runs_, 1);
  const std::string log = log_.str();
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 2) << log;
  EXPECT_THAT(log, AllOf(HasSubstr("answers with 503"), HasSubstr("PostgreSQL is back")));
}

TEST_F(Http, a_store_that_is_busy_is_a_reason_to_come_again) {
  serve([&](const auto&, auto&, Context& context) { context.tx().exec("UPDATE account"); });
  store_->on_statement([](const testing::Statement& statement) -> std::optional<Rows> {
    if (statement.sql == "UPDATE account") throw StoreBusy("a rival holds the row (SQLSTATE 55P03)");
    return std::nullopt;
  });
  expect_problem(post("k1"), 503, "same Idempotency-Key");
  EXPECT_THAT(log_.str(), HasSubstr("55P03"));
}

TEST_F(Http, the_effect_waits_for_locks_as_long_as_its_option_says) {
  serve(charge, {.lock_timeout = 1'234ms});
  post("k1");
  EXPECT_EQ(store_->committed().at(0).sql, "SET LOCAL lock_timeout = '1234ms'");
}

TEST_F(Http, an_effect_publishes_and_does_not_reply) {
  std::string what;
  serve([&](const auto& request, auto&, Context& context) {
    OwnedMessage message;
    message.topic = "orders";
    context.publish(message);
    EXPECT_TRUE(context.idempotency_key());
    if (request.body != "reply") return;
    try {
      context.reply("x");
    } catch (const std::logic_error& error) {
      what = error.what();
      throw;
    }
  });
  http_.server.set_exception_handler([](const auto&, auto& response, const auto&) { response.status = 500; });
  EXPECT_EQ(post("k1").status, 200);
  EXPECT_EQ(post("k2", "reply").status, 500);
  EXPECT_THAT(what, HasSubstr("httplib::Response is what is kept"));
  EXPECT_EQ(store_->published().size(), 1U);
}

TEST_F(Http, a_key_that_was_recorded_as_done_is_answered_as_done) {
  serve(charge);
  inbox_.record("charge", "k1", "receipt 17");
  inbox_.record("charge", "k2");
  const auto with_text = post("k1"), without = post("k2");
  EXPECT_EQ(with_text.status, 200);
  EXPECT_EQ(with_text.body, "receipt 17");
  EXPECT_EQ(without.status, 204);
  for (const auto& response : {with_text, without}) EXPECT_EQ(response.get_header_value(kReplayed), "true");
  EXPECT_EQ(runs_, 0);
}

TEST_F(Http, a_response_that_a_newer_version_kept_is_not_passed_off_as_another) {
  serve(charge);
  inbox_.record("charge", "k1", "2:H2,3:201,");
  expect_problem(post("k1"), 500, "took effect before");
  EXPECT_THAT(log_.str(), HasSubstr("newer version"));
  EXPECT_EQ(runs_, 0);
}

}  // namespace
}  // namespace turnstile::test
