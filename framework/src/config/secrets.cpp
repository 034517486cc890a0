#include "config/secrets.hpp"

#include <algorithm>
#include <array>

namespace turnstile::detail {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return out;
}

bool holds(const std::string& text, std::string_view word) { return text.find(word) != std::string::npos; }

}  // namespace

bool is_secret_kafka_key(std::string_view key) {
  // Compares words instead of whole keys, so that a setting of a newer librdkafka is redacted too.
  constexpr std::array<std::string_view, 9> words{"password",    "secret",  "token",       "credential", "jaas",
                                                  "ssl.key.pem", "ssl_key", "private.key", "passphrase"};
  const std::string name = lower(key);
  // This text may contain a token. Keys such as "sasl.oauthbearer.token.endpoint.url" are redacted too, because of
  // their words.
  if (name == "sasl.oauthbearer.config") return true;
  return std::any_of(words.begin(), words.end(), [&](auto word) { return holds(name, word); });
}

std::map<std::string, std::string> redacted(const std::map<std::string, std::string>& kafka) {
  auto shown = kafka;
  for (auto& [key, value] : shown) {
    if (is_secret_kafka_key(key)) value = "***";
  }
  return shown;
}

bool may_hold_secret(std::string_view line) {
  constexpr std::array<std::string_view, 12> words{"url",  "pass", "pwd",  "secret", "token", "credential",
                                                   "sasl", "ssl",  "jaas", "auth",   "://",   "headers"};
  const std::string text = lower(line);
  return std::any_of(words.begin(), words.end(), [&](auto word) { return holds(text, word); });
}

}  // namespace turnstile::detail
