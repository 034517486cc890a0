#include "token_log_settings.hpp"

#include <algorithm>
#include <array>
#include <string_view>

namespace turnstile::kafka {
namespace {

// How long an append may be in flight before its fate is unknown. Then a new epoch begins.
constexpr const char* kDeliveryTimeoutMs = "5000";

/// What the token log's clients do not take from [kafka]. A name that ends with '.' stands for all that begin with it.
constexpr auto kNotTaken = std::to_array<std::string_view>({
    // A record would wait for the answer to an earlier request.
    "socket.nagle.disable",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    // The broker would keep records back until there are many of them, or fetching would pause while a few wait.
    "fetch.",
    "queued.",
    "consume.callback.max.messages",
    // A follower has a record later than the leader.
    "client.rack",
    // How records are read. The token log sets what it needs.
    "auto.offset.reset",
    "isolation.level",
    "check.crcs",
    "enable.partition.eof",
    // librdkafka checks these against each other. The largest record is a snapshot.
    "max.partition.fetch.bytes",
    "receive.message.max.bytes",
    "message.max.bytes",
    // Records would wait for more of them, or be refused where the queue is small.
    "queue.buffering.",
    "linger.ms",
    "batch.size",
    "batch.num.messages",
    // The delivery timeout alone bounds for how long a record is tried.
    "retries",
    "message.send.max.retries",
    "retry.backoff.ms",
    "retry.backoff.max.ms",
    "request.timeout.ms",
    "message.timeout.ms",
    "delivery.timeout.ms",
    "enable.idempotence",
    "enable.gapless.guarantee",
    // A stored snapshot would not be reported, and the log would not be trimmed.
    "delivery.report.only.error",
    // Records are short.
    "compression.",
    // Nobody reads them.
    "statistics.interval.ms",
});

Settings connection_of(Settings settings) {
  std::erase_if(settings, [](const auto& setting) {
    return std::any_of(kNotTaken.begin(), kNotTaken.end(), [&](std::string_view name) {
      return name.ends_with('.') ? setting.first.starts_with(name) : setting.first == name;
    });
  });
  return settings;
}

}  // namespace

Settings token_log_reader_settings(const Settings& of_user, bool waits_for_end) {
  Settings settings = connection_of(of_user);
  // A missing position must be noticed, not skipped. No record here is transactional. Another program's open
  // transaction in this topic must not block its readers.
  settings["auto.offset.reset"] = "error";
  settings["isolation.level"] = "read_uncommitted";
  settings["fetch.error.backoff.ms"] = "50";
  // All readers must notice a damaged batch, not only those that cannot decode its bytes.
  settings["check.crcs"] = "true";
  // After this time a silent connection is given up; librdkafka's default is 60 s.
  settings.try_emplace("socket.timeout.ms", std::to_string(kTokenLogRequestMs));
  // A log may end with markers of another program's transaction, after which no record comes. Members need not know
  // that at once, and would be woken twice for each record.
  settings["enable.partition.eof"] = waits_for_end ? "true" : "false";
  // A request for a topic must not create it.
  if (waits_for_end) settings["allow.auto.create.topics"] = "false";
  return settings;
}

Settings token_log_writer_settings(const Settings& of_user) {
  Settings settings = connection_of(of_user);
  settings["enable.idempotence"] = "true";
  settings["linger.ms"] = "0";
  settings["message.max.bytes"] = "16777216";  // the size of a snapshot; the topic has the same setting
  settings["delivery.timeout.ms"] = kDeliveryTimeoutMs;
  settings["compression.codec"] = "none";
  return settings;
}

}  // namespace turnstile::kafka
