// turnstile limits divide: divides the token log into parts, while consumers run.

#include <fmt/format.h>

#include <charconv>
#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "command.hpp"
#include "domain.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/limiters.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint32_t kMostParts = 64;
constexpr milliseconds kDivideLook{200};
constexpr std::size_t kDivideShown = 60;

struct LimitsDivideOptions {
  DomainOptions domain;
  std::string parts;
  std::string timeout = "60s";
};

std::uint32_t parse_parts(const std::string& text) {
  std::uint32_t parts = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), parts);
  if (error != std::errc{} || rest != text.data() + text.size() || parts < 2 || parts > kMostParts)
    throw UsageError(fmt::format("limits divide: a token log can have 2 to {} parts, not {}", number(kMostParts),
                                 one_line(text, kDivideShown)));
  return parts;
}

/// Reads part 0 until nobody has permits there, or it is late.
std::vector<std::string> wait_until_moved(TokenReader& reader, steady_clock::time_point late) {
  for (;;) {
    while (const auto next = reader.peek(milliseconds{0})) reader.read_to(next->position);
    auto moving = reader.still_moving();
    if (moving.empty() || steady_clock::now() >= late) return moving;
    std::this_thread::sleep_for(kDivideLook);
  }
}

Exit divide(const Global& global, const LimitsDivideOptions& options) {
  const std::uint32_t parts = parse_parts(options.parts);
  const auto timeout = parse_duration(options.timeout);
  if (!timeout)
    throw UsageError(fmt::format("--timeout {}: write 500ms, 30s or 2m", one_line(options.timeout, kDivideShown)));
  const auto late = steady_clock::now() + *timeout;
  auto reader = open_domain(global, options.domain);
  reader->start(reader->begin());
  reader->read_to(reader->end() - 1);
  const bool was_divided = reader->parts() > 1;
  if (!was_divided) {
    if (const std::string why = reader->why_not_divided(parts); !why.empty())
      throw Refusal(fmt::format("{} was not divided: {}", reader->name(), why));
  }
  // Also of a log that is divided already: one of its topics may have been created again, with fewer partitions.
  if (!was_divided || reader->parts() == parts) {
    const DomainTopic of = topic_of(global, options.domain);
    kafka::extend_token_topics(of.kafka, of.topic, parts);
  }
  if (!reader->divide(parts, *timeout)) {
    const std::string& why = reader->why_not_written();
    throw BrokerError(
        Code::token_log_silent,
        fmt::format("the division was not read back from {} within {}{}. It may still take effect; run the "
                    "command again",
                    reader->name(), duration(*timeout), why.empty() ? "" : " (writing failed: " + why + ")"));
  }
  const auto moving = wait_until_moved(*reader, late);
  if (global.json) {
    print(Json{{"log", reader->name()}, {"parts", parts}, {"was_divided", was_divided}, {"still_moving", moving}});
    return Exit::ok;
  }
  fmt::print("{}: {} into {} parts\n", reader->name(), was_divided ? "was divided already," : "divided", number(parts));
  if (moving.empty()) fmt::print("no permits are in use in part 0: the limiters are granted in their own parts\n");
  else
    fmt::print(
        "permits that were taken before are still in use: {}. These limiters, and those that share a part with "
        "them, start no handler until those handlers have ended. To look again, repeat the command\n",
        some_of(moving));
  return Exit::ok;
}

}  // namespace

void add_limits_divide(Verb limits, Command& command) {
  const auto options = std::make_shared<LimitsDivideOptions>();
  const auto verb = limits.add_verb("divide", "spreads the token log over several partitions, for large clusters");
  verb.add_option("PARTS", options->parts, "2 to 64; part 0 only tells how many there are").required();
  add_domain_options(verb, options->domain);
  verb.add_option("--timeout", options->timeout, "how long to wait until running handlers have returned their permits")
      .type("TIME")
      .shows_default();
  verb.footer(
      "It adds partitions to the topic and to its topic for snapshots, and needs the right Alter on both. Limiters pause\n"
      "until the handlers that run under those of the same part have ended, so choose a quiet time. All members must run\n"
      "a build that knows divided logs, and none may have [limits] reserve; otherwise nothing is changed. The number of\n"
      "parts cannot be changed later. Repeating the command is safe.");
  verb.runs(command, [options](const Global& global) { return divide(global, *options); });
}

}  // namespace turnstile::cli
