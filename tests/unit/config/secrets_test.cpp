#include "config/secrets.hpp"

#include <gtest/gtest.h>

namespace turnstile::detail {
namespace {

TEST(SecretsTest, known_secrets_are_shown_as_stars) {
  const std::map<std::string, std::string> kafka{{"bootstrap.servers", "broker:9092"},
                                                 {"sasl.username", "app"},
                                                 {"sasl.password", "hunter2"},
                                                 {"ssl.key.password", "hunter2"},
                                                 {"ssl.keystore.password", "hunter2"},
                                                 {"ssl.key.pem", "hunter2"},
                                                 {"sasl.oauthbearer.config", "hunter2"},
                                                 {"sasl.oauthbearer.client.secret", "hunter2"},
                                                 {"sasl.oauthbearer.assertion.private.key.pem", "hunter2"},
                                                 {"sasl.oauthbearer.assertion.private.key.passphrase", "hunter2"}};
  const auto shown = redacted(kafka);
  ASSERT_EQ(shown.size(), kafka.size());
  EXPECT_EQ(shown.at("bootstrap.servers"), "broker:9092");
  EXPECT_EQ(shown.at("sasl.username"), "app");
  for (const auto& [key, value] : shown) EXPECT_NE(value, "hunter2") << key;
}

TEST(SecretsTest, a_line_with_a_telling_word_may_hold_one) {
  for (const char* line :
       {"url = \"x\"", "\"sasl.password\" = x", "PASSWORD=x", "dsn = postgres://u:p@h/d", "api_token = x"}) {
    EXPECT_TRUE(may_hold_secret(line)) << line;
  }
  for (const char* line : {"limit = 64", "[topics.payments]", "", "order = \"key\""})
    EXPECT_FALSE(may_hold_secret(line)) << line;
}

}  // namespace
}  // namespace turnstile::detail
