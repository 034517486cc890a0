// One dead letter with its record, and its edits.

#include "admin/dead_rows.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

std::vector<Header> headers_of(const Rows& rows) {
  std::vector<Header> headers;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    headers.push_back({bytes_at(rows, row, 0).value_or(""), bytes_at(rows, row, 1)});
  }
  return headers;
}

std::optional<std::string> damage_of(const Rows& rows) {
  if (const auto time = rows.at(0, kSummaryColumns + 6))
    return "its record_timestamp is '" + std::string(*time) + "', so its row was changed by hand";
  // A table cannot store lists of pairs. A shorter list would be filled with nulls without an error.
  const auto names = rows.get<std::int64_t>(0, kSummaryColumns + 4),
             values = rows.get<std::int64_t>(0, kSummaryColumns + 5);
  if (names == values && !rows.get<bool>(0, kSummaryColumns + 7)) return std::nullopt;
  if (names == values) return "the name of a header is NULL, so its row was changed by hand";
  return "it has " + std::to_string(names) + " header names but " + std::to_string(values) +
         " header values, so its row was changed by hand, and its headers are lost";
}

/// `table` has the columns of a record, and $1 is the number of the dead letter.
std::vector<Header> headers_in(auto& session, std::string_view table, std::string_view where, const Arguments& which) {
  return headers_of(
      session.run("SELECT u.name, u.value FROM " + std::string(table) +
                      " d, unnest(d.header_names, d.header_values) WITH ORDINALITY AS u (name, value, n) WHERE " +
                      std::string(where) + " ORDER BY u.n",
                  which));
}

/// In the open transaction of `session`.
std::optional<DeadRecord> load(auto& session, std::int64_t number) {
  const Arguments which{std::to_string(number)};
  const std::string time_is_known(kTimeIsKnown);
  const Rows rows =
      session.run(select_summary() + ", CASE WHEN " + time_is_known +
                      " THEN (extract(epoch FROM d.record_timestamp) * 1000)::bigint END, "
                      "d.record_key, d.record_payload, d.incarnation, cardinality(d.header_names)::bigint, "
                      "cardinality(d.header_values)::bigint, CASE WHEN NOT (" +
                      time_is_known + ") THEN d.record_timestamp::text END, " + std::string(kLacksName) +
                      std::string(kDeadFrom) + "WHERE d.id = $1::bigint",
                  which);
  if (rows.empty()) return std::nullopt;
  DeadRecord dead;
  dead.summary = summary_at(rows, 0);
  dead.dead_letter = dead_letter_at(rows, 0);
  dead.record.topic = dead.summary.from.at.topic;
  dead.record.partition = dead.summary.from.at.partition;
  dead.record.offset = dead.summary.offset;
  if (rows.at(0, kSummaryColumns))
    dead.record.timestamp = Timestamp(std::chrono::milliseconds(rows.get<std::int64_t>(0, kSummaryColumns)));
  dead.record.key = bytes_at(rows, 0, kSummaryColumns + 1);
  dead.record.payload = bytes_at(rows, 0, kSummaryColumns + 2);
  dead.incarnation = rows.get<std::int32_t>(0, kSummaryColumns + 3);
  dead.damage = damage_of(rows);
  dead.record.headers = headers_in(session, "dead", "d.id = $1::bigint", which);
  if (dead.summary.edits == 0) return dead;
  const Rows edits = session.run(
      "SELECT " + microseconds_of("edited_at") + ", edited_by FROM dead_edit WHERE dead = $1::bigint ORDER BY edit",
      which);
  for (std::size_t row = 0; row < edits.size(); ++row)
    dead.edits.push_back({time_at(edits, row, 0), edits.get<std::string>(row, 1)});
  return dead;
}

std::string bytea(const std::optional<std::string>& bytes) { return "\\x" + hex(bytes.value_or("")); }

/// {"\\x6162",NULL}
std::string bytea_array(const std::vector<Header>& headers, bool values) {
  std::string list;
  for (const auto& header : headers) {
    list += list.empty() ? "" : ",";
    if (values && !header.value) list += "NULL";
    else list += "\"\\" + bytea(values ? header.value : header.name) + "\"";
  }
  return "{" + list + "}";
}

}  // namespace

std::optional<DeadRecord> Admin::load_dead(std::int64_t number) {
  return session_->transact(Patience{}, [&] { return load(*session_, number); });
}

std::optional<DeadRecord> Admin::load_dead_as_died(std::int64_t number) {
  return session_->transact(Patience{}, [&] {
    auto dead = load(*session_, number);
    if (!dead || dead->edits.empty()) return dead;
    const Arguments which{std::to_string(number)};
    const Rows payload =
        session_->run("SELECT record_payload FROM dead_edit WHERE dead = $1::bigint AND edit = 1", which);
    if (!payload.empty()) {
      dead->record.payload = bytes_at(payload, 0, 0);
      dead->record.headers = headers_in(*session_, "dead_edit", "d.dead = $1::bigint AND d.edit = 1", which);
    }
    return dead;
  });
}

bool Admin::edit_dead(const DeadRecord& seen, const OwnedMessage& edited, const std::string& by) {
  return session_->transact(Patience{}, [&] {
    if (session_->run("SELECT 1 FROM dead d" + std::string(kAsSeen) + "FOR UPDATE", as_seen(seen.summary)).empty())
      return false;
    const std::string number = std::to_string(seen.summary.number);
    session_->run(
        "INSERT INTO dead_edit (dead, edit, edited_by, record_payload, header_names, header_values) "
        "SELECT d.id, d.edits + 1, $2::text || ', role ' || session_user, d.record_payload, d.header_names, d.header_values "
        "FROM dead d WHERE d.id = $1::bigint",
        {number, printable(by)});
    session_->run(
        "UPDATE dead SET edits = edits + 1, record_payload = $2::bytea, header_names = $3::bytea[], "
        "header_values = $4::bytea[] WHERE id = $1::bigint",
        {number, edited.payload ? std::optional(bytea(edited.payload)) : std::nullopt,
         bytea_array(edited.headers, false), bytea_array(edited.headers, true)});
    return true;
  });
}

}  // namespace turnstile::postgres
