#include "audit/report.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "domain.hpp"

namespace turnstile::cli::audit {

namespace {

constexpr std::size_t kShown = 60;
constexpr std::array kAllFates{Fate::took_effect, Fate::duplicate,   Fate::dead_letter,
                               Fate::parked,      Fate::for_another, Fate::pending,
                               Fate::cannot_tell, Fate::two_fates,   Fate::unaccounted};

std::string upper(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
  return out;
}

std::string key_of(Fate fate) {
  std::string out(to_text(fate));
  std::replace(out.begin(), out.end(), ' ', '_');
  return out;
}

/// The table has no column in which all is 0, except for those that everyone looks for.
std::vector<Fate> shown_fates(const RecordAudit& records) {
  std::vector<Fate> shown;
  for (const Fate fate : kAllFates) {
    const bool always = fate == Fate::took_effect || fate == Fate::duplicate || fate == Fate::dead_letter ||
                        fate == Fate::pending || fate == Fate::unaccounted;
    if (always || records.sum(fate) > 0) shown.push_back(fate);
  }
  return shown;
}

void print_records(const RecordAudit& records) {
  fmt::print("topic {}, group {}, handler {}\n", one_line(records.topic, kShown), one_line(records.group, kShown),
             one_line(records.handler, kShown));
  fmt::print("the database as of {}{}\n\n", when(records.taken_at),
             records.all_since ? "; ids are stored since " + when(*records.all_since) : "");
  const auto shown = shown_fates(records);
  std::vector<std::vector<std::string>> rows{{"PARTITION", "OFFSETS", "RECORDS"}};
  for (const Fate fate : shown) rows[0].push_back(upper(to_text(fate)));
  for (const auto& counts : records.partitions) {
    auto& row = rows.emplace_back();
    row = {std::to_string(counts.range.partition), fmt::format("{} to {}", counts.range.begin, counts.range.end - 1),
           number(counts.records)};
    if (counts.range.begin == counts.range.end) row[1] = "none";
    for (const Fate fate : shown) row.push_back(number(counts.of(fate)));
  }
  auto& sums = rows.emplace_back(std::vector<std::string>{"all", "", number(records.records())});
  for (const Fate fate : shown) sums.push_back(number(records.sum(fate)));
  fmt::print("{}\n", table(rows));
  const bool counts = numbers_records(records.mode);
  if (counts) {
    fmt::print(
        "In mode {} the database has no ids, only how far each partition is settled: an effect cannot be compared with "
        "its record, and a request that was published twice counts as two that took effect.\n",
        records.mode == Mode::by_offset ? "by_offset" : "numbered");
  }
  if (counts && records.sum(Fate::cannot_tell) > 0) {
    fmt::print(
        "cannot tell: {} that the group has settled, although table progress of handler {} does not reach them\n",
        count(records.sum(Fate::cannot_tell), "record"), one_line(records.handler, kShown));
  } else if (records.sum(Fate::cannot_tell) > 0) {
    fmt::print("cannot tell: {} older than the ids that are stored ({})\n",
               count(records.sum(Fate::cannot_tell), "record"), records.all_since ? when(*records.all_since) : "");
  }
  if (records.deleted_unsettled() > 0) {
    fmt::print(
        "cannot tell: up to {} that Kafka deleted before the group had settled them. If the group went past them, they "
        "are lost\n",
        count(records.deleted_unsettled(), "record"));
  }
  if (records.effects_of_deleted > 0) {
    fmt::print(
        "cannot tell: {} whose record the broker has deleted, or which belong to the topic before it was recreated\n",
        count(records.effects_of_deleted, "effect"));
  }
  if (records.effects_of_unread > 0) {
    fmt::print(
        "cannot tell: {} whose record is behind an open transaction of a producer; audit again when it has ended "
        "(turnstile doctor names it)\n",
        count(records.effects_of_unread, "effect"));
  }
}

/// Effects of the handler that this audit cannot compare, because they belong to no record of the topic.
void print_elsewhere(const postgres::AuditedElsewhere& elsewhere, std::size_t most) {
  if (elsewhere.unknown > 0)
    fmt::print("cannot tell: {} in partitions that the database does not know any more\n",
               count(elsewhere.unknown, "effect"));
  if (elsewhere.by_call > 0)
    fmt::print("not compared: {} of calls, which have no record\n", count(elsewhere.by_call, "effect"));
  for (std::size_t i = 0; i < std::min(most, elsewhere.others.size()); ++i) {
    const auto& other = elsewhere.others[i];
    fmt::print("not compared: {} in topic {}, group {}\n", count(other.effects, "effect"),
               one_line(other.topic, kShown), one_line(other.group, kShown));
  }
}

std::string place_of(const Violation& violation) {
  if (violation.slot) return fmt::format("slot {}@{}", *violation.slot, violation.at.offset);
  return fmt::format("{}[{}]@{}", one_line(violation.at.at.topic, kShown), violation.at.at.partition,
                     violation.at.offset);
}

void print_violations(const RecordAudit& records, std::size_t most) {
  std::size_t shown = 0;
  for (const auto& violation : records.violations) {
    if (shown++ == most) {
      fmt::print("… and more; --list N shows more of them\n");
      return;
    }
    fmt::print("VIOLATION {}{}: {}\n", place_of(violation),
               violation.time == Timestamp{} ? "" : " (" + when(Microseconds(violation.time)) + ")",
               one_line(violation.why, SIZE_MAX));
  }
}

void print_log(const LimitAudit& limits, std::size_t most) {
  const TokenAudit& log = *limits.log;
  if (!log.known) {
    fmt::print("token log {}: cannot tell: it was trimmed, and no snapshot that continues in it is left\n",
               limits.name);
    return;
  }
  fmt::print("token log {}: {} from position {} ({}) on, {} compared\n", limits.name, count(log.records, "record"),
             log.known_from + 1, when_or_unknown(log.first_time_ms), count(log.compared, "state"));
  for (const auto& held : log.lowered) {
    fmt::print(
        "cannot tell: {} had {} permits of {} at the first position that is known; the limit may have been lowered before\n",
        one_line(held.limiter, kShown), held.held, held.limit);
  }
  for (std::size_t i = 0; i < std::min(most, log.excesses.size()); ++i) {
    const auto& at = log.excesses[i];
    fmt::print("VIOLATION position {} ({}): members hold {} permits of {}, and the limit is {}\n", at.position,
               when_or_unknown(at.time_ms), at.held, one_line(at.limiter, kShown), at.limit);
  }
  for (std::size_t i = 0; i < std::min(most, log.differences.size()); ++i) {
    const auto& at = log.differences[i];
    fmt::print("VIOLATION position {}: {} has another state than the log gives\n", at.position, one_line(at.what, 200));
  }
}

void print_limits(const LimitAudit& limits, std::size_t most) {
  if (limits.log) print_log(limits, most);
  for (const auto& limiter : limits.in_database) {
    if (limiter.held <= limiter.limit) continue;
    fmt::print("{} limiter {}: {} permits are held now, and the limit is {}{}\n",
               limiter.is_exceeded() ? "VIOLATION" : "no violation:", one_line(limiter.name, kShown), limiter.held,
               limiter.limit, limiter.is_exceeded() ? "" : ", which was lowered after they were granted");
  }
  if (!limits.in_database.empty())
    fmt::print("limits in PostgreSQL: {} compared now; their past is not recorded\n",
               count(static_cast<std::int64_t>(limits.in_database.size()), "limiter"));
  if (!limits.why_not.empty()) fmt::print("limits: not compared: {}\n", limits.why_not);
}

Json violations_json(const RecordAudit& records, std::size_t most) {
  Json all = Json::array();
  for (const auto& violation : records.violations) {
    if (all.size() == most) break;
    const bool in_topic = !violation.slot;
    all.push_back({{"topic", in_topic ? Json(violation.at.at.topic) : Json(nullptr)},
                   {"partition", in_topic ? Json(violation.at.at.partition) : Json(nullptr)},
                   {"slot", in_topic ? Json(nullptr) : Json(*violation.slot)},
                   {"offset", violation.at.offset},
                   {"time", violation.time == Timestamp{} ? Json(nullptr) : Json(iso(Microseconds(violation.time)))},
                   {"why", violation.why}});
  }
  return all;
}

Json excesses_json(const std::vector<TokenAudit::Excess>& excesses) {
  Json all = Json::array();
  for (const auto& at : excesses) {
    all.push_back({{"position", at.position},
                   {"time", iso_or_null(moment(at.time_ms))},
                   {"limiter", at.limiter},
                   {"held", at.held},
                   {"limit", at.limit}});
  }
  return all;
}

Json log_json(const LimitAudit& limits) {
  if (!limits.log) return nullptr;
  const TokenAudit& log = *limits.log;
  Json differences = Json::array();
  for (const auto& at : log.differences) differences.push_back({{"position", at.position}, {"what", at.what}});
  return {{"name", limits.name},
          {"known", log.known},
          {"from_position", log.known_from + 1},
          {"from_time", iso_or_null(moment(log.first_time_ms))},
          {"records", log.records},
          {"compared", log.compared},
          {"above_limit", excesses_json(log.excesses)},
          {"above_limit_at_first", excesses_json(log.lowered)},
          {"differences", std::move(differences)}};
}

/// The value of a label in the text format of Prometheus. prometheus-cpp has the same, but only the build with the admin
/// endpoint has that library.
std::string label_value(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') out += "\\n";
    else out += c;
  }
  return out;
}

}  // namespace

bool Report::holds() const {
  return records.unaccounted == 0 && records.effects_without_record == 0 && limit_violations() == 0;
}

std::int64_t Report::limit_violations() const {
  std::int64_t all = 0;
  if (limits.log) all = static_cast<std::int64_t>(limits.log->excesses.size() + limits.log->differences.size());
  for (const auto& limiter : limits.in_database) all += limiter.is_exceeded() ? 1 : 0;
  return all;
}

void print(const Report& report, std::size_t most) {
  print_records(report.records);
  print_elsewhere(report.records.elsewhere, most);
  print_violations(report.records, most);
  fmt::print("outbox: {} to be sent, {} refused by the broker\n", count(report.records.outbox.waiting, "message"),
             number(report.records.outbox.refused));
  print_limits(report.limits, most);
  if (report.holds() && report.records.records() == 0) {
    fmt::print("\nno record lies in this span, so no fates were compared; the times are UTC\n");
  } else if (report.holds()) {
    fmt::print(
        "\nall guarantees hold: each record {}has one fate, each effect {}has a record, and no limit was exceeded{}\n",
        report.records.deleted_unsettled() == 0 ? "" : "that Kafka still has ",
        report.records.compared_all_effects() ? "" : "that could be compared ",
        report.limits.why_not.empty() ? "" : " as far as limits were compared");
  } else {
    fmt::print("\nNOT all guarantees hold: {} unaccounted, {} without a record, {} of limits\n",
               count(report.records.unaccounted, "record"), count(report.records.effects_without_record, "effect"),
               count(report.limit_violations(), "violation"));
  }
}

Json to_json(const Report& report, std::size_t most) {
  const RecordAudit& records = report.records;
  Json partitions = Json::array();
  for (const auto& counts : records.partitions) {
    Json fates;
    for (const Fate fate : kAllFates) fates[key_of(fate)] = counts.of(fate);
    partitions.push_back({{"partition", counts.range.partition},
                          {"begin", counts.range.begin},
                          {"end", counts.range.end},
                          {"records", counts.records},
                          {"fates", std::move(fates)}});
  }
  Json others = Json::array();
  for (const auto& other : records.elsewhere.others)
    others.push_back({{"topic", other.topic}, {"group", other.group}, {"effects", other.effects}});
  Json limiters = Json::array();
  for (const auto& limiter : report.limits.in_database)
    limiters.push_back({{"name", limiter.name},
                        {"limit", limiter.limit},
                        {"held", limiter.held},
                        {"exceeded", limiter.is_exceeded()}});
  return {{"holds", report.holds()},
          {"topic", records.topic},
          {"group", records.group},
          {"handler", records.handler},
          {"database_at", iso(records.taken_at)},
          {"ids_since", iso_or_null(records.all_since)},
          {"records", records.records()},
          {"unaccounted", records.unaccounted},
          {"effects_without_record", records.effects_without_record},
          {"cannot_tell", records.sum(Fate::cannot_tell)},
          {"deleted_unsettled_records", records.deleted_unsettled()},
          {"effects_of_deleted_records", records.effects_of_deleted},
          {"effects_of_unread_records", records.effects_of_unread},
          {"effects_in_unknown_partitions", records.elsewhere.unknown},
          {"effects_of_calls", records.elsewhere.by_call},
          {"effects_elsewhere", std::move(others)},
          {"partitions", std::move(partitions)},
          {"violations", violations_json(records, most)},
          {"outbox", {{"waiting", records.outbox.waiting}, {"refused", records.outbox.refused}}},
          {"token_log", log_json(report.limits)},
          {"limiters", std::move(limiters)},
          {"limits_not_compared", report.limits.why_not.empty() ? Json(nullptr) : Json(report.limits.why_not)}};
}

std::string metrics(const Report& report, std::int64_t now_s) {
  const std::string labels = fmt::format("{{group=\"{}\",topic=\"{}\"}}", label_value(report.records.group),
                                         label_value(report.records.topic));
  std::string text;
  const auto gauge = [&](std::string_view name, std::string_view help, std::int64_t value) {
    text += fmt::format("# HELP {0} {1}\n# TYPE {0} gauge\n{0}{2} {3}\n", name, help, labels, value);
  };
  gauge("turnstile_unaccounted_records", "Records without exactly one fate, by the last turnstile audit.",
        report.records.unaccounted);
  gauge("turnstile_deleted_unsettled_records",
        "At most this number of records were deleted by Kafka before the group had settled them, by the last audit.",
        report.records.deleted_unsettled());
  gauge("turnstile_effects_without_record", "Effects without a record, by the last turnstile audit.",
        report.records.effects_without_record);
  gauge(
      "turnstile_positions_above_limit",
      "Positions at which permits above a limit were given, or members have another state than the token log gives, by "
      "the last audit.",
      report.limit_violations());
  gauge("turnstile_audited_records", "Records that the last turnstile audit compared.", report.records.records());
  gauge("turnstile_audit_timestamp_seconds", "When the last turnstile audit ended.", now_s);
  return text;
}

}  // namespace turnstile::cli::audit
