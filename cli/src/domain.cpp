#include "domain.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "output.hpp"
#include "settings.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::cli {

namespace {

constexpr std::size_t kShown = 60;
/// Of a long list of limiters.
constexpr std::size_t kNamed = 5;

[[noreturn]] void fail_missing(const Config& config, const DomainOptions& options, const std::string& topic,
                               const std::string& brokers) {
  const std::string why =
      options.topic ? "from --topic"
      : !config.limits.topic.empty()
          ? config.where("limits.topic")
          : fmt::format("group.id is \"{}\" ({}), and [limits] topic is not set", config.group(), source_of(config));
  constexpr std::chrono::seconds kLookUp{3};
  const std::string snapshots = topic + ".snapshots";
  if (kafka::open_broker(require_kafka(config), nullptr)->describe(snapshots, kLookUp)) {
    throw Error(
        Code::token_log_deleted,
        fmt::format(
            "the token log {} at {} was deleted: its snapshots, {}, still exist. Members that ran have halted; stop all "
            "members of the domain and start them again: the first one creates the topic, without the limits that operators had set",
            topic, brokers, snapshots));
  }
  throw Error(
      Code::not_found,
      fmt::format(
          "there is no token log {} at {} (its name: {}). The first consumer with a limit over the cluster creates it "
          "when it starts: start one. If the consumers' log has another name, write [limits] topic or "
          "[kafka] \"group.id\" as they have it, or give --topic NAME. Limits that PostgreSQL counts "
          "(postgres::open_limiters) have no log: a program sets them with postgres::set_limit",
          topic, brokers, why));
}

std::string lease_end(std::int64_t ends_ms, std::int64_t now_ms) {
  if (ends_ms == 0) return "unknown";
  if (now_ms == 0) return when_or_unknown(ends_ms);
  const auto left_s = (ends_ms - now_ms) / 1'000;
  if (ends_ms >= now_ms) return fmt::format("in {}", duration(std::chrono::seconds(left_s)));
  return fmt::format("{} ago", duration(std::chrono::seconds(std::max<std::int64_t>(-left_s, 1))));
}

std::int64_t lease_end_ms(const TokenReader& reader, const PermitsView::Holder& holder, std::uint32_t part) {
  const auto heard_ms = reader.time_of(holder.heard_at, part);
  return heard_ms == 0 ? 0 : heard_ms + holder.lease.count();
}

bool any_strict(const PermitsView::Entry& entry) {
  return std::any_of(entry.holders.begin(), entry.holders.end(), [](const auto& holder) { return holder.strict; });
}

std::string since(const TokenReader& reader, const PermitsView::Holder& holder, std::uint32_t part) {
  if (holder.held == 0) return "-";
  if (const auto time_ms = reader.time_of(holder.held_since, part); time_ms != 0)
    return fmt::format("{} @{}", when_or_unknown(time_ms), holder.held_since);
  return fmt::format("@{}", holder.held_since);
}

}  // namespace

void add_domain_options(Verb verb, DomainOptions& options) {
  verb.add_option("--topic", options.topic, "the domain's token log (default: [limits] topic, else GROUP.tokens)")
      .type("NAME");
}

void add_part_options(Verb verb, DomainOptions& options) {
  verb.add_option("--limiter", options.limiter,
                  "of a divided log: the part in which this limiter lives, instead of part 0")
      .type("NAME");
}

void warn_of_directory(const TokenReader& reader, const DomainOptions& options) {
  if (reader.parts() == 1 || options.limiter) return;
  tell(fmt::format(
      "turnstile: the log is divided into {} parts, and this is part 0, which grants no permits since then. "
      "--limiter NAME shows the part of that limiter\n",
      number(reader.parts())));
}

namespace {

DomainTopic topic_of(const Config& config, const DomainOptions& options) {
  if (options.topic && !ports::is_topic_name(*options.topic)) {
    throw UsageError(fmt::format("--topic {}: Kafka allows 1 to 249 letters, digits, '.', '_' and '-'",
                                 one_line(*options.topic, kShown)));
  }
  if (config.limits.over != "cluster" && !options.topic) {
    throw UsageError(fmt::format(
        "{} = \"{}\": each process counts by itself, so there is no token log, and no limit to show or set from "
        "outside; limits over all processes need over = \"cluster\"",
        config.where("limits.over"), config.limits.over));
  }
  return {.kafka = require_kafka(config),
          .topic = options.topic                 ? *options.topic
                   : config.limits.topic.empty() ? config.group() + ".tokens"
                                                 : config.limits.topic};
}

/// The name may be misspelt: each name has a part.
void warn_of_unknown(const TokenReader& directory, TokenReader& home, const std::string& limiter) {
  const auto moving = directory.still_moving();
  if (std::find(moving.begin(), moving.end(), limiter) != moving.end()) return;
  home.start(home.end());
  PermitsView view;
  try {
    view = home.permits();
  } catch (const TokenLogBroken&) {
    return;  // the verb reports it
  }
  const bool is_known = std::any_of(view.limiters.begin(), view.limiters.end(),
                                    [&](const auto& entry) { return entry.limiter == limiter; });
  if (is_known) return;
  tell(fmt::format(
      "turnstile: no limiter \"{}\" is in {} now. A limiter of this name would live in the part that is shown. "
      "turnstile limits list shows the names\n",
      one_line(limiter, kShown), directory.name()));
}

}  // namespace

DomainTopic topic_of(const Global& global, const DomainOptions& options) {
  return topic_of(load_settings(global), options);
}

std::unique_ptr<TokenReader> open_domain(const Global& global, const DomainOptions& options) {
  const Config config = load_settings(global);
  const auto [kafka, topic] = topic_of(config, options);
  auto log = kafka::find_token_log(kafka, topic, nullptr);
  if (!log) fail_missing(config, options, topic, kafka.at("bootstrap.servers"));
  auto reader = std::make_unique<TokenReader>(std::move(log), kafka::parts_of_token_log(kafka, topic));
  if (!options.limiter) return reader;
  reader->start(reader->begin());
  reader->read_to(reader->end() - 1);
  if (reader->parts() > 1) {
    auto home = reader->home_of(*options.limiter);
    warn_of_unknown(*reader, *home, *options.limiter);
    return home;
  }
  DomainOptions undivided = options;
  undivided.limiter.reset();
  return open_domain(global, undivided);
}

Exit look_at_domain(const Global& global, const DomainOptions& options, const std::function<Exit(TokenReader&)>& look) {
  try {
    return look(*open_domain(global, options));
  } catch (const TokenLogBroken&) {
    return look(*open_domain(global, options));
  }
}

std::string holder(const std::string& client, const std::string& host, std::uint32_t pid) {
  return process_name(one_line(client, kShown), one_line(host, kShown), pid);
}

std::string holder(const TokenMember& member) {
  if (member.host.empty() && member.client.empty()) return fmt::format("member {}", member.id);
  return holder(member.client, member.host, member.pid);
}

Json to_json(const TokenMember& member) {
  // As text, because many JSON readers support no integers above 2^53.
  Json json{{"member", std::to_string(member.id)}};
  const bool known = !member.host.empty() || !member.client.empty();
  json["client"] = known ? Json(member.client) : Json(nullptr);
  json["host"] = known ? Json(member.host) : Json(nullptr);
  json["pid"] = known ? Json(member.pid) : Json(nullptr);
  return json;
}

std::optional<Microseconds> moment(std::int64_t time_ms) {
  if (time_ms == 0) return std::nullopt;
  return Microseconds{std::chrono::milliseconds{time_ms}};
}

std::string when_or_unknown(std::int64_t time_ms) {
  const auto time = moment(time_ms);
  return time ? when(*time) : "unknown";
}

std::string where_read(const TokenReader& reader, const PermitsView& view) {
  if (reader.parts() == 1) return fmt::format("{}, after position {}", reader.name(), view.position);
  return fmt::format("{}, divided into {} parts", reader.name(), number(reader.parts()));
}

std::string some_of(const std::vector<std::string>& limiters) {
  std::string text;
  for (std::size_t i = 0; i < std::min(limiters.size(), kNamed); ++i)
    text += (text.empty() ? "" : ", ") + one_line(limiters[i], kShown);
  return limiters.size() > kNamed ? fmt::format("{} and {} more", text, limiters.size() - kNamed) : text;
}

void print_moving(const PermitsView& view) {
  std::vector<std::string> moving;
  for (const auto& entry : view.limiters) {
    if (entry.moving) moving.push_back(entry.limiter);
  }
  if (moving.empty()) return;
  fmt::print(
      "the log was divided, and no handler starts under {} until the handlers that ran before, under limiters of the same "
      "part, have ended\n",
      some_of(moving));
}

void print_permits(const TokenReader& reader, const PermitsView& view, std::int64_t now_ms, bool idle) {
  std::vector<std::vector<std::string>> rows{
      {"LIMITER", "LIMIT", "HOLDER", "HELD", "BUSY", "WANTS", "SINCE", "LEASE ENDS", ""}};
  std::int64_t hidden = 0;
  bool draining = false, over = false;
  for (const auto& entry : view.limiters) {
    const bool strict = any_strict(entry);
    for (const auto& who : entry.holders) {
      if (!idle && who.held == 0 && who.wants == 0) {
        ++hidden;
        continue;
      }
      draining |= who.draining;
      const auto ends_ms = lease_end_ms(reader, who, entry.part);
      over |= ends_ms != 0 && ends_ms < now_ms;
      rows.push_back({one_line(entry.limiter, kShown), number(entry.limit), holder(who.client, who.host, who.pid),
                      number(who.held), number(who.busy), number(who.wants), since(reader, who, entry.part),
                      lease_end(ends_ms, now_ms),
                      fmt::format("{}{}{}", who.draining ? "draining" : "", who.draining && strict ? ", " : "",
                                  strict ? "strict" : "")});
    }
  }
  if (rows.size() > 1) fmt::print("{}", table(rows));
  else fmt::print("no process holds or wants a permit\n");
  if (hidden > 0) fmt::print("members that hold and want nothing: {} (--all shows them)\n", number(hidden));
  if (over) {
    fmt::print("a lease that has ended: its permits return once another member has run for as long as that lease\n");
  }
  if (draining) {
    fmt::print(
        "draining: others have its partitions, and it has not reported since. Its permits count until it reports, its lease "
        "ends, or, unless strict, the database has fenced it\n");
  }
  print_moving(view);
}

Json permits_as_json(const TokenReader& reader, const PermitsView& view) {
  Json permits = Json::array();
  for (const auto& entry : view.limiters) {
    const bool strict = any_strict(entry);
    for (const auto& who : entry.holders) {
      Json json{{"limiter", entry.limiter}, {"limit", entry.limit}};
      json.update(to_json(TokenMember{.id = who.member, .client = who.client, .host = who.host, .pid = who.pid}));
      json["held"] = who.held;
      json["busy"] = who.busy;
      json["wants"] = who.wants;
      json["share"] = who.share;
      json["configured"] = who.configured > 0 ? Json(who.configured) : Json(nullptr);
      json["draining"] = who.draining;
      json["strict"] = strict;
      json["since_position"] = who.held > 0 ? Json(who.held_since) : Json(nullptr);
      json["since"] = who.held > 0 ? iso_or_null(moment(reader.time_of(who.held_since, entry.part))) : Json(nullptr);
      json["heard_position"] = who.heard_at;
      json["heard_at"] = iso_or_null(moment(reader.time_of(who.heard_at, entry.part)));
      json["lease_ms"] = who.lease.count();
      json["expires_at"] = iso_or_null(moment(lease_end_ms(reader, who, entry.part)));
      permits.push_back(std::move(json));
    }
  }
  return permits;
}

}  // namespace turnstile::cli
