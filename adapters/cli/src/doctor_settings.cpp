#include <fmt/format.h>

#include <charconv>

#include "doctor.hpp"
#include "text.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::milliseconds;

// librdkafka's defaults (its CONFIGURATION.md), and ours (turnstile/settings.hpp).
constexpr milliseconds kSessionTimeout{45'000};
constexpr milliseconds kMaxPollInterval{300'000};
constexpr milliseconds kHandlerTimeout{30'000};

milliseconds kafka_time(const Config& config, const std::string& key, milliseconds otherwise) {
  const auto found = config.kafka.find(key);
  if (found == config.kafka.end()) return otherwise;
  std::int64_t value = 0;
  const auto& text = found->second;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} ? milliseconds(value) : otherwise;
}

}  // namespace

void look_at_settings(const Config& config, Findings& findings) {
  const auto session = kafka_time(config, "session.timeout.ms", kSessionTimeout);
  const auto poll_interval = kafka_time(config, "max.poll.interval.ms", kMaxPollInterval);
  const auto before = findings.all().size();
  if (config.consumer.drain_timeout >= poll_interval) {
    findings.problem(
        "time limits",
        fmt::format("{} = {} reaches max.poll.interval.ms = {}: while running handlers are given time to finish, the "
                    "group takes this member for dead",
                    config.where("consumer.drain_timeout"), duration(config.consumer.drain_timeout),
                    duration(poll_interval)),
        fmt::format("shorten drain_timeout, or raise kafka.\"max.poll.interval.ms\" above {}",
                    config.consumer.drain_timeout.count()));
  }
  for (const auto& [topic, settings] : config.topics) {
    const auto timeout = settings.handler_timeout.value_or(kHandlerTimeout);
    if (timeout <= session) continue;
    findings.warning(
        "time limits",
        fmt::format(
            "{} = {} is longer than session.timeout.ms = {}: when this process falls silent, the partition's next "
            "owner may start a message whose handler still runs here",
            config.where("topics." + topic + ".handler_timeout"), duration(timeout), duration(session)),
        fmt::format("shorten handler_timeout, or raise kafka.\"session.timeout.ms\" to {}", timeout.count()));
  }
  if (findings.all().size() == before) {
    findings.ok("time limits", fmt::format("session {}, drain {}, handlers within the session", duration(session),
                                           duration(config.consumer.drain_timeout)));
  }
}

}  // namespace turnstile::cli
