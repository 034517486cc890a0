#pragma once
// Tables for guards, and two transactions that use a guard on the same row.

#include <functional>
#include <future>

#include "tests/integration/postgres_fixture.hpp"
#include "turnstile/postgres/guards.hpp"

namespace turnstile::test {

using postgres::Guarded;
using postgres::Table;

/// The cells of the one row that was found.
inline std::vector<std::string> cells(const Rows& rows) {
  std::vector<std::string> all;
  EXPECT_EQ(rows.size(), 1U);
  for (std::size_t i = 0; i < rows.columns() && !rows.empty(); ++i) all.push_back(rows.at(0, i).value_or("NULL"));
  return all;
}

/// Passes every statement on, and counts the statements.
struct CountingTransaction final : Transaction {
  explicit CountingTransaction(Transaction& to) : to_(to) {}
  Rows run(std::string_view text, std::span<const Param> params) override {
    ++count;
    return to_.run(text, params);
  }
  void queue(std::string_view text, std::span<const Param> params) override {
    ++count;
    to_.queue(text, params);
  }
  int count = 0;

 private:
  Transaction& to_;
};

class Guards : public PostgresTest {
 protected:
  void SetUp() override {
    PostgresTest::SetUp();
    if (IsSkipped()) return;
    sql().exec(
        "CREATE TABLE payment (id text PRIMARY KEY, cents bigint NOT NULL, note text);"
        "CREATE TABLE orders (id bigint PRIMARY KEY, state text, paid_by text);"
        "INSERT INTO orders VALUES (1, 'open'), (2, 'cancelled'), (3, NULL);"
        "CREATE TABLE account (name text PRIMARY KEY, cents bigint NOT NULL, version integer NOT NULL);"
        "INSERT INTO account VALUES ('ada', 1000, 7)");
    session_->begin(scope(), {});
  }
  /// Commits the transaction and begins the next one.
  void commit() {
    session_->commit();
    session_->begin(scope(), {});
  }
  void roll_back() { session_->begin(scope(), {}); }

  /// Whether that backend waits for a lock in the end.
  bool waits(const std::string& pid) {
    return eventually(
        [&] { return sql().one("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " + pid) == "1"; });
  }

  using Call = std::function<Guarded(Transaction&)>;
  /// `first` is applied in an open transaction. `second` meets it and waits for it. `second` gets its answer after the
  /// first transaction was committed or rolled back.
  Guarded meet(const Call& first, const Call& second, bool committed) {
    const auto rival = store_->open_session();
    rival->begin(scope(), {});
    const auto pid = rival->transaction().exec("SELECT pg_backend_pid()").get<std::string>(0, 0);
    EXPECT_TRUE(first(tx()).applied());
    auto answer = std::async(std::launch::async, [&] {
      Guarded told = second(rival->transaction());
      rival->commit();
      return told;
    });
    EXPECT_TRUE(waits(pid));
    if (committed) session_->commit();
    else session_->rollback();
    Guarded told = answer.get();
    session_->begin(scope(), {});
    return told;
  }
  Guarded meet(const Call& both, bool committed) { return meet(both, both, committed); }
};

}  // namespace turnstile::test
