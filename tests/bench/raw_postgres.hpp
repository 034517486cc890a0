#pragma once
// libpq by hand, as a careful programmer would use it: prepared statements, binary arrays, pipeline mode. One thread
// uses a Database. Every error ends the program.

#include <libpq-fe.h>

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bench {

using Uuid = std::array<unsigned char, 16>;

/// Converts 36 characters to 16 bytes. Ends the program for any other text.
Uuid parse_uuid(std::string_view text);

/// PostgreSQL's binary form of a one-dimensional array without nulls.
std::string uuid_array(std::span<const Uuid> ids);
std::string bigint_array(std::span<const std::int64_t> values);

/// The tables of the raw programs: raw_inbox, raw_effects, raw_user_effects and raw_lease. Drops and creates them.
void make_raw_tables(const std::string& url);

/// A record of the framework's table `outbox`. It points into its batch. Headers are left out, because the benchmarks
/// write none.
struct OutboxRow {
  std::string_view message_id;
  const char* topic;
  std::string_view key, payload;
};

class OutboxBatch {
 public:
  explicit OutboxBatch(PGresult* rows) : rows_(rows) {}
  ~OutboxBatch() { PQclear(rows_); }
  OutboxBatch(const OutboxBatch&) = delete;
  OutboxBatch& operator=(const OutboxBatch&) = delete;

  [[nodiscard]] int size() const { return PQntuples(rows_); }
  [[nodiscard]] OutboxRow row(int i) const;
  /// (shard, id) of all records, as two binary arrays.
  [[nodiscard]] std::string shards() const { return column(0); }
  [[nodiscard]] std::string ids() const { return column(1); }

 private:
  [[nodiscard]] std::string column(int number) const;
  [[nodiscard]] std::string_view bytes(int i, int number) const;

  PGresult* rows_;
};

class Database {
 public:
  explicit Database(const std::string& url);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  void exec(const char* sql);
  /// The first column of the first row, as a number.
  std::int64_t number(const char* sql);
  /// The first column of all rows.
  std::vector<std::string> texts(const char* sql);
  /// Prepares the statements of the functions below. The tables must exist.
  void prepare_statements();

  // An inbox row and a business row, as text.
  /// True if the id was new.
  bool insert_id(const std::string& uuid_text);
  void insert_effect(std::int64_t payment, std::int64_t amount);

  // A lease of 30 s by hand. Each function is a statement with its own commit.
  /// The fence of the claim. Absent if the id is done, or if another owner's lease is not over.
  std::optional<std::int64_t> claim(const std::string& uuid_text, const std::string& owner);
  bool is_done(const std::string& uuid_text);
  /// False if the claim was lost.
  bool complete(const std::string& uuid_text, const std::string& owner, std::int64_t fence);
  /// The ids that are claimed now, of these, which are sorted.
  std::vector<Uuid> claim_many(std::span<const Uuid> sorted, const std::string& owner);
  /// How many of these claims have ended.
  std::int64_t complete_many(std::span<const Uuid> ids, const std::string& owner);

  /// The batch's ids, sorted bytewise and without repetitions. Returns the new ids, in any order.
  std::vector<Uuid> insert_ids(std::span<const Uuid> sorted);
  void insert_effects(std::span<const std::int64_t> payments, std::span<const std::int64_t> amounts);

  // The framework's tables.
  void prepare_look_up(const std::string& schema, std::int64_t handler);
  /// Whether the inbox has the id.
  bool look_up(const std::string& uuid_text);
  void prepare_outbox(const std::string& schema, std::int64_t batch);
  /// The first waiting records, in the order of the primary key.
  OutboxBatch read_outbox();
  /// It does not wait for the disk, as the relay: records that a crash restores are sent again, with the same id.
  void delete_outbox(const OutboxBatch& batch);

  // Pipeline mode: statements between enter and the next sync() are sent together.
  void enter_pipeline();
  void leave_pipeline();
  void send(const char* sql);
  void send_ids(std::span<const Uuid> sorted);
  void send_effect(std::int64_t payment, std::int64_t amount);
  void send_effects(std::span<const std::int64_t> payments, std::span<const std::int64_t> amounts);
  // The same for raw_user_effects.
  void send_user_effect(const Uuid& payment, std::int64_t amount);
  void send_user_effects(std::span<const Uuid> payments, std::span<const std::int64_t> amounts);
  /// Flushes, and reads the results of all sent statements. Returns the ids of the statement that returned rows.
  std::vector<Uuid> sync();

 private:
  void prepare(const char* name, const char* sql);
  PGresult* check(PGresult* result, const char* what);
  static void collect(const PGresult* result, std::vector<Uuid>& into);

  PGconn* pg_ = nullptr;
  int waiting_ = 0;  ///< statements sent since the last sync()
};

}  // namespace bench
