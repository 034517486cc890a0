// Lists, counts and deletes dead letters, in the order of the time when they died.

#include "admin/dead_rows.hpp"
#include "turnstile/error.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

/// Groups are counted over the whole table.
constexpr Patience kCountingLetters{600'000};
/// The rows that one statement of a search looks at. With a header or a text it reads their whole records.
constexpr std::int64_t kLettersAtOnce = 10'000, kRecordsAtOnce = 1'000;

/// The conditions of a statement, and their arguments.
class Where {
 public:
  /// Adds a condition in which `$` stands for the argument.
  void add(std::string_view condition, std::string argument) {
    const auto at = condition.find('$');
    add(std::string(condition.substr(0, at)) + bind(std::move(argument)) + std::string(condition.substr(at + 1)));
  }
  void add(std::string_view condition) { sql_.append(sql_.empty() ? "" : " AND ").append(condition); }
  /// "$3"
  std::string bind(std::string argument) {
    arguments_.emplace_back(std::move(argument));
    return "$" + std::to_string(arguments_.size());
  }
  /// The conditions since the last call, or "true".
  std::string take() {
    std::string sql = sql_.empty() ? "true" : std::move(sql_);
    sql_.clear();
    return sql;
  }
  [[nodiscard]] const Arguments& arguments() const noexcept { return arguments_; }

 private:
  std::string sql_;
  Arguments arguments_;
};

std::string as_bytea(std::string_view bytes) { return "\\x" + hex(bytes); }
std::string as_microseconds(DatabaseTime time) { return std::to_string(time.time_since_epoch().count()); }

/// A place in the order of time.
struct Place {
  std::string died_at = "-infinity";
  std::int64_t number = 0;
};

[[noreturn]] void refuse_cursor(const std::string& cursor) {
  throw Error(Code::usage, "this is not where a page of dead letters begins: " + printable(cursor.substr(0, 80)));
}

Place parse(const std::string& cursor) {
  const auto slash = cursor.rfind('/');
  const std::string digits = slash == std::string::npos ? "" : cursor.substr(slash + 1);
  if (digits.empty() || digits.size() > 18 || digits.find_first_not_of("0123456789") != std::string::npos ||
      cursor.find_first_not_of("0123456789-+:.T BCinfty/") != std::string::npos)
    refuse_cursor(cursor);
  return {cursor.substr(0, slash), std::stoll(digits)};
}

/// Conditions on the columns that `alias` has of the index dead_waiting.
void add_kind(Where& where, const std::string& alias, const DeadFilter& filter) {
  if (filter.handler) where.add(alias + ".handler = (SELECT id FROM handler WHERE name = $::text)", *filter.handler);
  if (filter.topic) where.add(alias + ".slot IN (SELECT slot FROM fence WHERE topic = $::text)", *filter.topic);
  if (filter.reason) where.add(alias + ".reason = $::text", *filter.reason);
}

void add_span(Where& where, const DeadFilter& filter, const std::optional<Place>& after) {
  if (after) {
    where.add("(d.died_at, d.id) > (" + where.bind(after->died_at) + "::timestamptz, " +
              where.bind(std::to_string(after->number)) + "::bigint)");
  }
  const std::string time = "timestamptz 'epoch' + $::bigint * interval '1 microsecond'";
  if (filter.since) where.add("d.died_at >= " + time, as_microseconds(*filter.since));
  if (filter.until) where.add("d.died_at < " + time, as_microseconds(*filter.until));
}

/// None: no end.
void add_end(Where& where, const std::optional<Place>& end) {
  if (!end) return;
  where.add("(d.died_at, d.id) <= (" + where.bind(end->died_at) + "::timestamptz, " +
            where.bind(std::to_string(end->number)) + "::bigint)");
}

void add_numbers(Where& where, const DeadFilter& filter) {
  if (filter.from) where.add("d.id >= $::bigint", std::to_string(*filter.from));
  if (filter.up_to) where.add("d.id <= $::bigint", std::to_string(*filter.up_to));
}

/// The cheap conditions first: PostgreSQL tests them in this order.
void add_row(Where& where, const DeadFilter& filter) {
  if (!filter.with_replayed) where.add(kWaiting);
  add_kind(where, "d", filter);
  add_numbers(where, filter);
  if (filter.id) where.add("d.message_id = $::uuid", filter.id->text());
  if (filter.header) {
    const std::string value = filter.header->value
                                  ? "u.value = " + where.bind(as_bytea(*filter.header->value)) + "::bytea"
                                  : "u.value IS NULL";
    where.add(
        "EXISTS (SELECT FROM unnest(d.header_names, d.header_values) AS u (name, value) WHERE u.name = $::bytea AND " +
            value + ")",
        as_bytea(filter.header->name));
  }
  if (filter.text) where.add("position($::bytea IN d.record_payload) > 0", as_bytea(*filter.text));
  if (filter.damaged) where.add(is_damaged());
}

/// A statement and its arguments.
struct Statement {
  std::string sql;
  Arguments arguments;
};

// Each partition, handler and reason has its part of the index dead_waiting, in the order of time. The statement finds
// the parts one after the other, takes the first rows of each, and of these the first. So it never reads more than a
// page of each part, however many rows there are.
Statement first_waiting(const DeadFilter& filter, const std::optional<Place>& after, std::int64_t most) {
  Where where;
  add_kind(where, "k", filter);
  const std::string kinds = where.take();
  add_span(where, filter, after);
  add_numbers(where, filter);
  const std::string rows = where.take(), limit = " LIMIT " + where.bind(std::to_string(most)) + "::bigint";
  const std::string waiting(kWaiting);
  const std::string part = "SELECT d.slot, d.handler, d.reason FROM dead d WHERE " + waiting;
  const std::string in_order = " ORDER BY d.slot, d.handler, d.reason LIMIT 1";
  return {"WITH RECURSIVE kind AS ((" + part + in_order + ") UNION ALL SELECT n.* FROM kind k CROSS JOIN LATERAL (" +
              part + " AND (d.slot, d.handler, d.reason) > (k.slot, k.handler, k.reason)" + in_order +
              ") n), first AS MATERIALIZED (SELECT n.id FROM kind k CROSS JOIN LATERAL (SELECT d.id, d.died_at "
              "FROM dead d WHERE " +
              waiting + " AND d.slot = k.slot AND d.handler = k.handler AND d.reason = k.reason AND " + rows +
              " ORDER BY d.died_at, d.id" + limit + ") n WHERE " + kinds + " ORDER BY n.died_at, n.id" + limit + ") " +
              select_summary() + std::string(kDeadFrom) +
              "WHERE d.id = ANY (ARRAY(SELECT id FROM first)) ORDER BY d.died_at, d.id",
          where.arguments()};
}

/// The last place among the next `most` rows of the span. No row: there are fewer.
Statement end_of_step(const DeadFilter& filter, const std::optional<Place>& after, std::int64_t most) {
  Where where;
  add_span(where, filter, after);
  const std::string span = where.take(), skipped = where.bind(std::to_string(most - 1));
  return {"SELECT d.died_at::text, d.id FROM dead d WHERE " + span + " ORDER BY d.died_at, d.id OFFSET " + skipped +
              "::bigint LIMIT 1",
          where.arguments()};
}

/// The rows of a step that match, up to `end`.
Statement matches(const DeadFilter& filter, const std::optional<Place>& after, const std::optional<Place>& end,
                  std::int64_t most) {
  Where where;
  add_span(where, filter, after);
  add_end(where, end);
  add_row(where, filter);
  const std::string rows = where.take();
  return {select_summary() + std::string(kDeadFrom) + "WHERE " + rows + " ORDER BY d.died_at, d.id LIMIT " +
              where.bind(std::to_string(most)) + "::bigint",
          where.arguments()};
}

/// A row that another session replays is locked by it.
Statement removal(const DeadPurge& purge, const std::optional<Place>& after, const std::optional<Place>& end) {
  Where where;
  add_span(where, purge.which, after);
  add_end(where, end);
  add_row(where, purge.which);
  where.add(purge.only_replayed ? kReplayed : kNotInDoubt);
  return {"DELETE FROM dead WHERE id = ANY (ARRAY(SELECT d.id FROM dead d WHERE " + where.take() +
              " FOR UPDATE SKIP LOCKED))",
          where.arguments()};
}

// The errors are counted first as they are, so that few of them must be made alike.
Statement count_groups(const DeadFilter& filter, bool by_error) {
  Where where;
  add_span(where, filter, std::nullopt);
  add_row(where, filter);
  const std::string rows = where.take(), in_doubt(kInDoubt);
  return {
      "SELECT coalesce(h.name, ''), coalesce(f.topic, ''), g.reason, g.error, sum(g.letters)::bigint, "
      "       sum(g.in_doubt)::bigint, sum(g.edited)::bigint, sum(g.replayed)::bigint, min(g.example), " +
          microseconds_of("min(g.oldest)") + ", " + microseconds_of("max(g.newest)") +
          ", count(*) OVER (), (sum(sum(g.letters)) OVER ())::bigint "
          "FROM (SELECT e.*, regexp_replace(regexp_replace(e.text, '\\m(0x[0-9a-fA-F]+|[0-9a-fA-F]{8}[0-9a-fA-F-]*)\\M', '#', 'g'), "
          "                                 '[0-9]+', '#', 'g') AS error "
          "        FROM (SELECT d.slot, d.handler, d.reason, " +
          std::string(by_error ? "left(d.error, 300)" : "''") +
          " AS text, count(*) AS letters, "
          "                     count(*) FILTER (WHERE " +
          in_doubt + ") AS in_doubt, count(*) FILTER (WHERE d.edits > 0 AND " + std::string(kNotInDoubt) +
          ") AS edited, count(*) FILTER (WHERE " + std::string(kReplayed) +
          ") AS replayed, "
          "                     min(d.id) AS example, min(d.died_at) AS oldest, max(d.died_at) AS newest "
          "                FROM dead d WHERE " +
          rows +
          " GROUP BY 1, 2, 3, 4) e) g "
          "LEFT JOIN handler h ON h.id = g.handler LEFT JOIN fence f ON f.slot = g.slot "
          "GROUP BY 1, 2, 3, 4 ORDER BY 5 DESC, 2, 1, 3, 4 LIMIT " +
          where.bind(std::to_string(filter.most)) + "::bigint",
      where.arguments()};
}

std::vector<DeadSummary> summaries(const Rows& rows) {
  std::vector<DeadSummary> all;
  for (std::size_t row = 0; row < rows.size(); ++row) all.push_back(summary_at(rows, row));
  return all;
}

std::optional<Place> place_at(const Rows& rows) {
  if (rows.empty()) return std::nullopt;
  return Place{rows.get<std::string>(0, 0), rows.get<std::int64_t>(0, 1)};
}

}  // namespace

DeadPage Admin::dead(const DeadFilter& filter) {
  const auto ask = [&](const Statement& statement) {
    try {
      return session_->ask(statement.sql, statement.arguments);
    } catch (const SqlError& error) {
      // PostgreSQL cannot read a time. The others that are sent are numbers.
      if (filter.after && (error.sqlstate == "22007" || error.sqlstate == "22008")) refuse_cursor(*filter.after);
      throw;
    }
  };
  std::optional<Place> after;
  if (filter.after) after = parse(*filter.after);
  const std::int64_t most = filter.most + 1;
  const bool reads_records = filter.header || filter.text || filter.damaged;
  DeadPage page;
  if (!filter.with_replayed && !filter.id && !reads_records) {
    page.letters = summaries(ask(first_waiting(filter, after, most)));
  } else if (filter.id) {
    page.letters = summaries(ask(matches(filter, after, std::nullopt, most)));
  } else {
    const std::int64_t step = reads_records ? kRecordsAtOnce : kLettersAtOnce;
    do {
      const auto end = place_at(ask(end_of_step(filter, after, step)));
      const auto missing = most - static_cast<std::int64_t>(page.letters.size());
      for (auto& letter : summaries(ask(matches(filter, after, end, missing))))
        page.letters.push_back(std::move(letter));
      after = end;
    } while (after && static_cast<std::int64_t>(page.letters.size()) < most);
  }
  if (static_cast<std::int64_t>(page.letters.size()) == most) {
    page.letters.pop_back();
    page.next = page.letters.empty() ? filter.after : std::optional(page.letters.back().cursor);
  }
  return page;
}

DeadGroups Admin::dead_groups(const DeadFilter& filter, bool by_error) {
  const Statement statement = count_groups(filter, by_error);
  const Rows rows = session_->ask(statement.sql, statement.arguments, kCountingLetters);
  DeadGroups all;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    all.groups.push_back({.handler = rows.get<std::string>(row, 0),
                          .topic = rows.get<std::string>(row, 1),
                          .reason = rows.get<std::string>(row, 2),
                          .error = rows.get<std::string>(row, 3),
                          .count = rows.get<std::int64_t>(row, 4),
                          .in_doubt = rows.get<std::int64_t>(row, 5),
                          .edited = rows.get<std::int64_t>(row, 6),
                          .replayed = rows.get<std::int64_t>(row, 7),
                          .example = rows.get<std::int64_t>(row, 8),
                          .oldest = time_at(rows, row, 9),
                          .newest = time_at(rows, row, 10)});
    all.of_groups = rows.get<std::int64_t>(row, 11);
    all.letters = rows.get<std::int64_t>(row, 12);
  }
  return all;
}

DeadPurgeResult Admin::purge_dead(const DeadPurge& purge) {
  const auto run = [&](const Statement& statement) { return session_->run(statement.sql, statement.arguments); };
  DeadPurgeResult result;
  std::optional<Place> after;
  do {
    after = session_->transact(Patience{}, [&] {
      auto end = place_at(run(end_of_step(purge.which, after, kRecordsAtOnce)));
      result.deleted += static_cast<std::int64_t>(run(removal(purge, after, end)).affected());
      return end;
    });
    if (after && purge.on_batch && !purge.on_batch(result.deleted)) result.complete = false;
  } while (after && result.complete);
  return result;
}

}  // namespace turnstile::postgres
