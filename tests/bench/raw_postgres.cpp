#include "tests/bench/raw_postgres.hpp"

#include <arpa/inet.h>

#include <cstdlib>
#include <cstring>

#include "tests/bench/bench_common.hpp"

namespace bench {
namespace {

constexpr Oid kUuidOid = 2950;
constexpr Oid kBigintOid = 20;

constexpr const char* insert_ids_sql =
    "INSERT INTO raw_inbox (handler_id, message_id) SELECT 1, id FROM unnest($1::uuid[]) AS id ORDER BY id "
    "ON CONFLICT DO NOTHING RETURNING message_id";
constexpr const char* insert_id_sql =
    "INSERT INTO raw_inbox (handler_id, message_id) VALUES (1, $1::uuid) ON CONFLICT DO NOTHING";
// A message that is done stays done. A claim whose lease is over is taken over, and its fence increases
// (hazard: takeover-race).
constexpr const char* claim_sql =
    "INSERT INTO raw_lease AS l (handler_id, message_id, owner, expires_at) "
    "VALUES (1, $1::uuid, $2::text, clock_timestamp() + interval '30 seconds') "
    "ON CONFLICT (handler_id, message_id) DO UPDATE "
    "SET owner = excluded.owner, fence = l.fence + 1, expires_at = excluded.expires_at "
    "WHERE NOT l.done AND l.expires_at < clock_timestamp() RETURNING fence";
constexpr const char* kIsDoneSql = "SELECT FROM raw_lease WHERE handler_id = 1 AND message_id = $1::uuid AND done";
constexpr const char* complete_sql =
    "UPDATE raw_lease SET done = true WHERE handler_id = 1 AND message_id = $1::uuid AND owner = $2::text "
    "AND fence = $3::bigint AND NOT done";
constexpr const char* kClaimManySql =
    "INSERT INTO raw_lease AS l (handler_id, message_id, owner, expires_at) "
    "SELECT 1, id, $2::text, clock_timestamp() + interval '30 seconds' FROM unnest($1::uuid[]) AS id ORDER BY id "
    "ON CONFLICT (handler_id, message_id) DO UPDATE "
    "SET owner = excluded.owner, fence = l.fence + 1, expires_at = excluded.expires_at "
    "WHERE NOT l.done AND l.expires_at < clock_timestamp() RETURNING message_id";
constexpr const char* kCompleteManySql =
    "UPDATE raw_lease SET done = true WHERE handler_id = 1 AND message_id = ANY ($1::uuid[]) AND owner = $2::text AND NOT done";
constexpr const char* kInsertEffectSql = "INSERT INTO raw_effects (payment, amount) VALUES ($1::bigint, $2::bigint)";
constexpr const char* insert_effects_sql =
    "INSERT INTO raw_effects (payment, amount) SELECT * FROM unnest($1::bigint[], $2::bigint[])";

constexpr const char* kInsertUserEffectSql =
    "INSERT INTO raw_user_effects (payment, amount) VALUES ($1::uuid, $2::bigint)";
constexpr const char* kInsertUserEffectsSql =
    "INSERT INTO raw_user_effects (payment, amount) SELECT * FROM unnest($1::uuid[], $2::bigint[])";

void put32(std::string& to, std::uint32_t value) {
  value = htonl(value);
  to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

std::string array_header(Oid element, std::size_t count) {
  std::string out;
  put32(out, 1);  // dimensions
  put32(out, 0);  // no nulls
  put32(out, element);
  put32(out, static_cast<std::uint32_t>(count));
  put32(out, 1);  // lower bound
  return out;
}

void put_bigint(char* to, std::int64_t value) {
  const auto bits = static_cast<std::uint64_t>(value);
  for (int i = 0; i < 8; ++i) to[i] = static_cast<char>(bits >> (56 - 8 * i));
}

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

/// A row (payment, amount) as binary parameters.
struct EffectParams {
  EffectParams(std::int64_t payment, std::int64_t amount) {
    put_bigint(bytes, payment);
    put_bigint(bytes + 8, amount);
  }
  char bytes[16];
  const char* values[2] = {bytes, bytes + 8};
  int lengths[2] = {8, 8};
  int formats[2] = {1, 1};
};

/// One or two arrays as binary parameters.
struct ArrayParams {
  explicit ArrayParams(std::string first, std::string second = {})
      : text{std::move(first), std::move(second)},
        values{text[0].data(), text[1].data()},
        lengths{static_cast<int>(text[0].size()), static_cast<int>(text[1].size())} {}
  std::string text[2];
  const char* values[2];
  int lengths[2];
  int formats[2] = {1, 1};
};

}  // namespace

Uuid parse_uuid(std::string_view text) {
  Uuid out{};
  std::size_t nibble = 0;
  for (const char c : text) {
    if (c == '-') continue;
    const int digit = hex(c);
    if (digit < 0 || nibble >= 32) die("not a UUID: " + std::string(text));
    out[nibble / 2] = static_cast<unsigned char>(out[nibble / 2] * 16 + digit);
    ++nibble;
  }
  if (nibble != 32) die("not a UUID: " + std::string(text));
  return out;
}

std::string uuid_array(std::span<const Uuid> ids) {
  std::string out = array_header(kUuidOid, ids.size());
  out.reserve(out.size() + ids.size() * 20);
  for (const Uuid& id : ids) {
    put32(out, 16);
    out.append(reinterpret_cast<const char*>(id.data()), id.size());
  }
  return out;
}

std::string bigint_array(std::span<const std::int64_t> values) {
  std::string out = array_header(kBigintOid, values.size());
  out.reserve(out.size() + values.size() * 12);
  for (const std::int64_t value : values) {
    put32(out, 8);
    char bytes[8];
    put_bigint(bytes, value);
    out.append(bytes, sizeof bytes);
  }
  return out;
}

std::string_view OutboxBatch::bytes(int i, int number) const {
  return {PQgetvalue(rows_, i, number), static_cast<std::size_t>(PQgetlength(rows_, i, number))};
}

OutboxRow OutboxBatch::row(int i) const { return {bytes(i, 2), PQgetvalue(rows_, i, 3), bytes(i, 4), bytes(i, 5)}; }

std::string OutboxBatch::column(int number) const {
  std::string out = array_header(kBigintOid, static_cast<std::size_t>(size()));
  for (int i = 0; i < size(); ++i) {
    put32(out, 8);
    out.append(bytes(i, number));
  }
  return out;
}

void make_raw_tables(const std::string& url) {
  Database db(url);
  db.exec("SET client_min_messages = warning");
  db.exec("DROP TABLE IF EXISTS raw_inbox, raw_effects, raw_user_effects, raw_lease");
  db.exec(
      "CREATE TABLE raw_inbox (handler_id smallint NOT NULL, message_id uuid NOT NULL, PRIMARY KEY (handler_id, message_id))");
  db.exec("CREATE TABLE raw_effects (payment bigint NOT NULL, amount bigint NOT NULL)");
  db.exec("CREATE TABLE raw_user_effects (payment uuid NOT NULL, amount bigint NOT NULL)");
  db.exec(
      "CREATE TABLE raw_lease (handler_id smallint NOT NULL, message_id uuid NOT NULL, owner text NOT NULL, "
      "fence bigint NOT NULL DEFAULT 1, expires_at timestamptz NOT NULL, done boolean NOT NULL DEFAULT false, "
      "PRIMARY KEY (handler_id, message_id)) WITH (fillfactor = 90)");
  db.exec("CHECKPOINT");  // so that no run pays for the full-page images of the previous one
}

Database::Database(const std::string& url) : pg_(PQconnectdb(url.c_str())) {
  if (PQstatus(pg_) != CONNECTION_OK) die(PQerrorMessage(pg_));
}

Database::~Database() { PQfinish(pg_); }

PGresult* Database::check(PGresult* result, const char* what) {
  const ExecStatusType status = PQresultStatus(result);
  if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_PIPELINE_SYNC) {
    die(std::string(what) + ": " + (result != nullptr ? PQresultErrorMessage(result) : PQerrorMessage(pg_)));
  }
  return result;
}

void Database::exec(const char* sql) { PQclear(check(PQexec(pg_, sql), sql)); }

std::int64_t Database::number(const char* sql) {
  PGresult* result = check(PQexec(pg_, sql), sql);
  if (PQntuples(result) < 1) die(std::string(sql) + ": no row");
  const std::int64_t out = std::strtoll(PQgetvalue(result, 0, 0), nullptr, 10);
  PQclear(result);
  return out;
}

std::vector<std::string> Database::texts(const char* sql) {
  PGresult* result = check(PQexec(pg_, sql), sql);
  std::vector<std::string> out;
  for (int i = 0; i < PQntuples(result); ++i) out.emplace_back(PQgetvalue(result, i, 0));
  PQclear(result);
  return out;
}

void Database::prepare(const char* name, const char* sql) {
  PQclear(check(PQprepare(pg_, name, sql, 0, nullptr), sql));
}

void Database::prepare_statements() {
  prepare("id", insert_id_sql);
  prepare("ids", insert_ids_sql);
  prepare("effect", kInsertEffectSql);
  prepare("effects", insert_effects_sql);
  prepare("user_effect", kInsertUserEffectSql);
  prepare("user_effects", kInsertUserEffectsSql);
  prepare("claim", claim_sql);
  prepare("is_done", kIsDoneSql);
  prepare("complete", complete_sql);
  prepare("claim_many", kClaimManySql);
  prepare("complete_many", kCompleteManySql);
}

bool Database::insert_id(const std::string& uuid_text) {
  const char* values[] = {uuid_text.c_str()};
  PGresult* result = check(PQexecPrepared(pg_, "id", 1, values, nullptr, nullptr, 0), "insert id");
  const bool fresh = std::strcmp(PQcmdTuples(result), "1") == 0;
  PQclear(result);
  return fresh;
}

void Database::insert_effect(std::int64_t payment, std::int64_t amount) {
  const EffectParams p(payment, amount);
  PQclear(check(PQexecPrepared(pg_, "effect", 2, p.values, p.lengths, p.formats, 0), "insert effect"));
}

std::optional<std::int64_t> Database::claim(const std::string& uuid_text, const std::string& owner) {
  const char* values[] = {uuid_text.c_str(), owner.c_str()};
  PGresult* result = check(PQexecPrepared(pg_, "claim", 2, values, nullptr, nullptr, 0), "claim");
  std::optional<std::int64_t> fence;
  if (PQntuples(result) == 1) fence = std::strtoll(PQgetvalue(result, 0, 0), nullptr, 10);
  PQclear(result);
  return fence;
}

bool Database::is_done(const std::string& uuid_text) {
  const char* values[] = {uuid_text.c_str()};
  PGresult* result = check(PQexecPrepared(pg_, "is_done", 1, values, nullptr, nullptr, 0), "is it done");
  const bool done = PQntuples(result) == 1;
  PQclear(result);
  return done;
}

bool Database::complete(const std::string& uuid_text, const std::string& owner, std::int64_t fence) {
  const std::string fence_text = std::to_string(fence);
  const char* values[] = {uuid_text.c_str(), owner.c_str(), fence_text.c_str()};
  PGresult* result = check(PQexecPrepared(pg_, "complete", 3, values, nullptr, nullptr, 0), "complete");
  const bool ours = std::strcmp(PQcmdTuples(result), "1") == 0;
  PQclear(result);
  return ours;
}

std::vector<Uuid> Database::claim_many(std::span<const Uuid> sorted, const std::string& owner) {
  const ArrayParams p(uuid_array(sorted), owner);
  PGresult* result = check(PQexecPrepared(pg_, "claim_many", 2, p.values, p.lengths, p.formats, 1), "claim ids");
  std::vector<Uuid> claimed;
  collect(result, claimed);
  PQclear(result);
  return claimed;
}

std::int64_t Database::complete_many(std::span<const Uuid> ids, const std::string& owner) {
  const ArrayParams p(uuid_array(ids), owner);
  PGresult* result = check(PQexecPrepared(pg_, "complete_many", 2, p.values, p.lengths, p.formats, 0), "complete ids");
  const std::int64_t done = std::strtoll(PQcmdTuples(result), nullptr, 10);
  PQclear(result);
  return done;
}

void Database::collect(const PGresult* result, std::vector<Uuid>& into) {
  const int rows = PQntuples(result);
  into.reserve(into.size() + static_cast<std::size_t>(rows));
  for (int i = 0; i < rows; ++i) {
    Uuid id;
    std::memcpy(id.data(), PQgetvalue(result, i, 0), id.size());
    into.push_back(id);
  }
}

std::vector<Uuid> Database::insert_ids(std::span<const Uuid> sorted) {
  const ArrayParams p(uuid_array(sorted));
  PGresult* result = check(PQexecPrepared(pg_, "ids", 1, p.values, p.lengths, p.formats, 1), "insert ids");
  std::vector<Uuid> fresh;
  collect(result, fresh);
  PQclear(result);
  return fresh;
}

void Database::insert_effects(std::span<const std::int64_t> payments, std::span<const std::int64_t> amounts) {
  const ArrayParams p(bigint_array(payments), bigint_array(amounts));
  PQclear(check(PQexecPrepared(pg_, "effects", 2, p.values, p.lengths, p.formats, 0), "insert effects"));
}

void Database::prepare_look_up(const std::string& schema, std::int64_t handler) {
  const std::string sql = "SELECT fingerprint FROM " + schema + ".inbox WHERE handler = " + std::to_string(handler) +
                          "::smallint AND id = $1::uuid";
  prepare("look_up", sql.c_str());
}

bool Database::look_up(const std::string& uuid_text) {
  const char* values[] = {uuid_text.c_str()};
  PGresult* result = check(PQexecPrepared(pg_, "look_up", 1, values, nullptr, nullptr, 0), "look up");
  const bool there = PQntuples(result) == 1;
  PQclear(result);
  return there;
}

void Database::prepare_outbox(const std::string& schema, std::int64_t batch) {
  exec("SET synchronous_commit = off");
  // A plan for the specific arrays of a batch would read the whole table. The limit is part of the text, so the generic
  // plan knows it.
  exec("SET plan_cache_mode = force_generic_plan");
  const std::string read =
      "SELECT o.shard::bigint, o.id, o.message_id::text, o.topic, o.record_key, o.record_payload FROM " + schema +
      ".outbox o WHERE o.shard >= 0 ORDER BY o.shard, o.id LIMIT " + std::to_string(batch);
  const std::string remove = "DELETE FROM " + schema +
                             ".outbox o USING unnest($1::bigint[], $2::bigint[]) AS d (shard, id) "
                             "WHERE o.shard = d.shard::smallint AND o.id = d.id";
  prepare("read_outbox", read.c_str());
  prepare("delete_outbox", remove.c_str());
}

OutboxBatch Database::read_outbox() {
  return OutboxBatch(check(PQexecPrepared(pg_, "read_outbox", 0, nullptr, nullptr, nullptr, 1), "read outbox"));
}

void Database::delete_outbox(const OutboxBatch& batch) {
  const ArrayParams p(batch.shards(), batch.ids());
  PQclear(check(PQexecPrepared(pg_, "delete_outbox", 2, p.values, p.lengths, p.formats, 0), "delete outbox"));
}

void Database::enter_pipeline() {
  if (PQenterPipelineMode(pg_) != 1) die(PQerrorMessage(pg_));
}

void Database::leave_pipeline() {
  if (PQexitPipelineMode(pg_) != 1) die(PQerrorMessage(pg_));
}

void Database::send(const char* sql) {
  if (PQsendQueryParams(pg_, sql, 0, nullptr, nullptr, nullptr, nullptr, 0) != 1) die(PQerrorMessage(pg_));
  ++waiting_;
}

void Database::send_ids(std::span<const Uuid> sorted) {
  const ArrayParams p(uuid_array(sorted));
  if (PQsendQueryPrepared(pg_, "ids", 1, p.values, p.lengths, p.formats, 1) != 1) die(PQerrorMessage(pg_));
  ++waiting_;
}

void Database::send_effect(std::int64_t payment, std::int64_t amount) {
  const EffectParams p(payment, amount);
  if (PQsendQueryPrepared(pg_, "effect", 2, p.values, p.lengths, p.formats, 0) != 1) die(PQerrorMessage(pg_));
  ++waiting_;
}

void Database::send_effects(std::span<const std::int64_t> payments, std::span<const std::int64_t> amounts) {
  const ArrayParams p(bigint_array(payments), bigint_array(amounts));
  if (PQsendQueryPrepared(pg_, "effects", 2, p.values, p.lengths, p.formats, 0) != 1) die(PQerrorMessage(pg_));
  ++waiting_;
}

void Database::send_user_effect(const Uuid& payment, std::int64_t amount) {
  char amount_bytes[8];
  put_bigint(amount_bytes, amount);
  const char* values[] = {reinterpret_cast<const char*>(payment.data()), amount_bytes};
  const int lengths[] = {16, 8}, formats[] = {1, 1};
  if (PQsendQueryPrepared(pg_, "user_effect", 2, values, lengths, formats, 0) != 1) die(PQerrorMessage(pg_));
  ++waiting_;
}

void Database::send_user_effects(std::span<const Uuid> payments, std::span<const std::int64_t> amounts) {
  const ArrayParams p(uuid_array(payments), bigint_array(amounts));
  if (PQsendQueryPrepared(pg_, "user_effects", 2, p.values, p.lengths, p.formats, 0) != 1) die(PQerrorMessage(pg_));
  ++waiting_;
}

std::vector<Uuid> Database::sync() {
  if (PQpipelineSync(pg_) != 1) die(PQerrorMessage(pg_));
  std::vector<Uuid> fresh;
  for (; waiting_ > 0; --waiting_) {
    PGresult* result = check(PQgetResult(pg_), "pipeline");
    if (PQresultStatus(result) == PGRES_TUPLES_OK) collect(result, fresh);
    PQclear(result);
    if (PQgetResult(pg_) != nullptr) die("pipeline: more than one answer to a statement");
  }
  PQclear(check(PQgetResult(pg_), "pipeline sync"));
  return fresh;
}

}  // namespace bench
