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

namespace turnstile::ports {

std::string RetryRef::text() const { return std::to_string(number) + "." + std::to_string(attempts); }

std::optional<RetryRef> RetryRef::parse(std::string_view text) {
  const auto read = [](std::string_view digits, auto& into) {
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), into);
    return error == std::errc{} && end == digits.data() + digits.size();
  };
  RetryRef ref;
  const auto dot = text.find('.');
  if (dot == std::string_view::npos || !read(text.substr(0, dot), ref.number) ||
      !read(text.substr(dot + 1), ref.attempts) || ref.attempts < 0)
    return std::nullopt;
  return ref;
}

}  // namespace turnstile::ports

namespace turnstile::detail {

std::optional<std::string> replayed_for_another(const Message& message, std::string_view handler,
                                                std::string_view group) {
  const auto whom = replayed_for(message);
  if (!whom) return std::nullopt;
  if (*whom != handler) return std::string(*whom);
  const auto of_group = message.header(kReplayedGroup);
  if (!of_group || group.empty() || *of_group == group) return std::nullopt;
  return std::string(*whom) + " of group " + std::string(*of_group);
}

std::optional<ports::RetryRef> retry_of(const Message& message) {
  const auto header = message.header(kRetry);
  return header && replayed_for(message) ? ports::RetryRef::parse(*header) : std::nullopt;
}

namespace {

bool names_a_replay(const Header& header) {
  return header.name == kRetry || header.name == kReplayedFor || header.name == kReplayedGroup ||
         header.name == kReplayedFrom;
}

}  // namespace

bool is_of_replay(const OwnedMessage& record) {
  return std::any_of(record.headers.begin(), record.headers.end(), names_a_replay);
}

void forget_replay(OwnedMessage& record) { std::erase_if(record.headers, names_a_replay); }

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
