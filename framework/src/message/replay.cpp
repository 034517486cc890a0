#include "message/replay.hpp"

#include <algorithm>
#include <charconv>

namespace turnstile {

int deaths_of(const Message& message) {
  const auto header = message.header(kDeaths);
  int deaths = 0;
  if (header) std::from_chars(header->data(), header->data() + header->size(), deaths);
  return std::clamp(deaths, 0, kMostDeaths);
}

}  // namespace turnstile

namespace turnstile::detail {

std::optional<std::string> first_origin(const Message& message) {
  if (const auto known = message.header(kFirstOrigin)) return std::string(*known);
  // A dead letter that a consumer of the dead letter topic reads.
  const auto topic = message.header("turnstile-original-topic");
  const auto partition = message.header("turnstile-original-partition");
  const auto offset = message.header("turnstile-original-offset");
  if (topic && partition && offset) {
    return std::string(*topic) + "[" + std::string(*partition) + "]@" + std::string(*offset);
  }
  // A dead letter that was published again.
  if (const auto from = message.header(kReplayedFrom)) return std::string(*from);
  return std::nullopt;
}

}  // namespace turnstile::detail
