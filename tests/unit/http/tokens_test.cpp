// One-time tokens over HTTP, with the in-memory store and a token store of the test's own.

#include "turnstile/http/tokens.hpp"

#include <gmock/gmock.h>
#include <spdlog/logger.h>

#include <atomic>
#include <map>
#include <mutex>

#include "tests/support/http_server.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::test {
namespace {

using namespace std::string_literals;
using ::testing::HasSubstr;

class HttpTokens : public ::testing::Test {
 protected:
  void SetUp() override {
    tokens_.issue = [this](Transaction&, std::string_view subject) {
      const std::lock_guard lock(mutex_);
      const std::string token = "t" + std::to_string(book_.size());
      book_[token] = {std::string(subject), false};
      return token;
    };
    tokens_.redeem = [this](Transaction&, std::string_view token, std::string_view subject) {
      const std::lock_guard lock(mutex_);
      const auto found = book_.find(token);
      if (found == book_.end() || found->second.subject != subject) return http::Redeemed::never;
      return std::exchange(found->second.redeemed, true) ? http::Redeemed::before : http::Redeemed::now;
    };
    tokens_.subject = [](const httplib::Request& request) { return request.get_header_value("User"); };
    http_.server.Get("/token", http::issue_tokens(store_, tokens_));
    http_.server.Post("/form", http::once_per_token(inbox_, "form", tokens_,
                                                    [this](const auto& request, auto& response, Context& context) {
                                                      context.tx().exec("INSERT INTO charge", request.body);
                                                      response.set_content("charge " + std::to_string(++runs_),
                                                                           "text/plain");
                                                    },
                                                    {.log = std::make_shared<spdlog::logger>("silent")}));
    http_.start();
  }
  std::string issue(const std::string& user) {
    const auto response = send(http_.port(), "GET", "/token", {{"User", user}}, "", "");
    EXPECT_EQ(response.get_header_value("Cache-Control"), "no-store");
    const std::string& body = response.body;  // the body is {"token":"t0"}
    return body.substr(10, body.find('"', 10) - 10);
  }
  httplib::Response post(const std::string& user, const std::string& form) {
    return send(http_.port(), "POST", "/form", {{"User", user}}, form, "application/x-www-form-urlencoded");
  }
  static void expect_problem(const httplib::Response& response, int status, const std::string& detail) {
    EXPECT_EQ(response.status, status);
    EXPECT_EQ(response.get_header_value("Content-Type"), "application/problem+json");
    EXPECT_THAT(response.body, HasSubstr(detail));
  }

  struct Issued {
    std::string subject;
    bool redeemed = false;
  };
  std::mutex mutex_;
  std::map<std::string, Issued, std::less<>> book_;
  const std::shared_ptr<testing::MemoryInbox> store_ = std::make_shared<testing::MemoryInbox>();
  Inbox inbox_{store_};
  http::Tokens tokens_;
  std::atomic<int> runs_ = 0;
  HttpServer http_;
};

TEST_F(HttpTokens, a_form_that_is_sent_twice_is_answered_as_the_first_time) {
  const std::string form = "token=" + issue("ada") + "&cents=10";
  EXPECT_EQ(post("ada", form).body, "charge 1");
  const auto again = post("ada", form);
  EXPECT_EQ(again.body, "charge 1");
  EXPECT_EQ(again.get_header_value("Idempotent-Replayed"), "true");
  EXPECT_EQ(post("ada", "token=" + issue("ada") + "&cents=10").body, "charge 2");
}

TEST_F(HttpTokens, the_token_may_come_in_a_multipart_form_or_a_header) {
  const std::string token = issue("ada");
  const std::string form = "--b\r\nContent-Disposition: form-data; name=\"token\"\r\n\r\n" + token + "\r\n--b--\r\n";
  const auto post_form = [&] {
    return send(http_.port(), "POST", "/form", {{"User", "ada"}}, form, "multipart/form-data; boundary=b");
  };
  EXPECT_EQ(post_form().body, "charge 1");
  EXPECT_EQ(post_form().body, "charge 1");
  const httplib::Headers headers{{"User", "ada"}, {"One-Time-Token", issue("ada")}};
  for (int i = 0; i < 2; ++i) EXPECT_EQ(send(http_.port(), "POST", "/form", headers, "{}").body, "charge 2");
}

TEST_F(HttpTokens, other_contents_under_the_same_token_are_refused) {
  const std::string token = "token=" + issue("ada");
  EXPECT_EQ(post("ada", token + "&cents=10").status, 200);
  expect_problem(post("ada", token + "&cents=99"), 422, "open the form again");
  EXPECT_EQ(runs_, 1);
}

TEST_F(HttpTokens, what_is_no_token_is_refused_and_not_kept) {
  expect_problem(post("ada", "cents=10"), 400, "the one-time token is empty; open the form again");
  expect_problem(post("ada", "token=a%00b"), 400, "not printable");
  expect_problem(post("ada", "token=" + std::string(256, 'x')), 400, "256 bytes");
  expect_problem(post("ada", "token=made-up"), 410, "open it again");
  expect_problem(post("grace", "token=" + issue("ada")), 410, "open it again");
  EXPECT_EQ(store_->size(), 0U);
  EXPECT_EQ(runs_, 0);
}

TEST_F(HttpTokens, a_token_that_was_redeemed_elsewhere_is_a_conflict) {
  const std::string token = issue("ada");
  book_.at(token).redeemed = true;
  expect_problem(post("ada", "token=" + token), 409, "was sent before");
  EXPECT_EQ(store_->size(), 0U);
}

TEST_F(HttpTokens, while_the_store_is_away_there_are_none) {
  const std::string form = "token=" + issue("ada");
  store_->set_unavailable(true);
  expect_problem(send(http_.port(), "GET", "/token", {}, "", ""), 503, "later");
  expect_problem(post("ada", form), 503, "send the form again as it is");
  store_->set_unavailable(false);
  EXPECT_EQ(post("ada", form).body, "charge 1");
}

}  // namespace
}  // namespace turnstile::test
