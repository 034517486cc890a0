// Two processes get the same payments at the same moment. Which ways of paying keep the balance right?
//
//   TURNSTILE_POSTGRES_URL=postgresql://localhost/app ways
//
// It creates and drops its own schema, turnstile_ways. It exits with 0 if the right ways kept the balance and the wrong
// ones did not, otherwise with 1. It exits with 2 without a database.

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <iomanip>
#include <iostream>
#include <pqxx/connection>
#include <pqxx/nontransaction>
#include <turnstile/postgres/guards.hpp>
#include <turnstile/postgres/migrations.hpp>
#include <turnstile/postgres/pqxx.hpp>

#include "ways.hpp"

using namespace turnstile;

namespace {

constexpr const char* kTables =
    "CREATE TABLE turnstile_ways.account (name text PRIMARY KEY, cents bigint NOT NULL, version bigint NOT NULL DEFAULT 0);"
    "CREATE TABLE turnstile_ways.note (payment text NOT NULL);"
    "CREATE TABLE turnstile_ways.payment (id text PRIMARY KEY, cents bigint NOT NULL);"
    "CREATE TABLE turnstile_ways.request (id text PRIMARY KEY, state text NOT NULL DEFAULT 'open')";

/// Creates the schema, an account for each way, and the payments for it.
std::vector<std::vector<Payment>> prepare(const std::string& url) {
  pqxx::connection connection{url};
  pqxx::nontransaction work{connection};
  auto tx = postgres::borrow(work);
  work.exec("DROP SCHEMA IF EXISTS turnstile_ways CASCADE");
  postgres::migrate_up({.url = Secret(url), .schema = kSchema}, postgres::embedded_migration_list());
  work.exec(kTables);
  std::vector<std::vector<Payment>> all;
  for (const Way& way : ways()) {
    tx.exec("INSERT INTO turnstile_ways.account (name, cents) VALUES ($1, $2)", way.name, kBalance);
    auto& payments = all.emplace_back();
    for (int number = 0; number < kPayments; ++number) {
      Payment payment{way.name, number, "", number, kBalance - number * kCents};
      payment.token =
          postgres::one_time_token::issue(tx, payment.id(), std::chrono::hours(1), {kSchema, "one_time_token"});
      tx.exec("INSERT INTO turnstile_ways.request (id) VALUES ($1)", payment.id());
      payments.push_back(std::move(payment));
    }
  }
  return all;
}

/// One of the two processes: it makes each payment at the same moment as the other.
void pay_all(const std::string& url, std::size_t rank, Shared& shared,
             const std::vector<std::vector<Payment>>& payments) {
  Process me{url, rank, shared};
  for (std::size_t way = 0; way < ways().size(); ++way) {
    for (const Payment& payment : payments[way]) {
      shared.meet();
      if (ways()[way].pay(me, payment)) ++shared.applied[way][rank];
    }
  }
}

/// Whether both ended well. If one fails, the other would wait for it, and is killed.
bool run_both(const std::string& url, Shared& shared, const std::vector<std::vector<Payment>>& payments) {
  std::array<pid_t, kProcesses> processes{};
  for (std::size_t rank = 0; rank < kProcesses; ++rank) {
    processes[rank] = ::fork();
    if (processes[rank] < 0) throw std::runtime_error("cannot start a process");
    if (processes[rank] > 0) continue;
    try {
      pay_all(url, rank, shared, payments);
      ::_exit(0);
    } catch (const std::exception& error) {
      std::cerr << "process " << rank + 1 << ": " << error.what() << std::endl;
      ::_exit(1);
    }
  }
  bool well = true;
  for (std::size_t ended = 0; ended < kProcesses; ++ended) {
    int status = 0;
    const pid_t which = ::wait(&status);
    if (status == 0) continue;
    if (WIFSIGNALED(status) && well) std::cerr << "a process was ended by signal " << WTERMSIG(status) << '\n';
    well = false;
    for (const pid_t other : processes) {
      if (other != which) ::kill(other, SIGTERM);
    }
  }
  return well;
}

/// Prints the table. Returns whether each way had the expected result.
bool judge(const std::string& url, const Shared& shared) {
  pqxx::connection connection{url};
  pqxx::nontransaction work{connection};
  auto tx = postgres::borrow(work);
  const int due = kBalance - kPayments * kCents;
  std::cout << kPayments << " payments of " << kCents << ", each given to two processes at once; " << kBalance
            << " before, " << due << " is right\n\n"
            << std::left << std::setw(32) << "way" << std::right << std::setw(12) << "applied by" << std::setw(12)
            << "balance" << '\n';
  bool as_expected = true;
  for (std::size_t i = 0; i < ways().size(); ++i) {
    const Way& way = ways()[i];
    const int left = tx.exec("SELECT cents FROM turnstile_ways.account WHERE name = $1", way.name).get<int>(0, 0);
    const std::string applied = std::to_string(shared.applied[i][0]) + " + " + std::to_string(shared.applied[i][1]);
    std::cout << std::left << std::setw(32) << way.name << std::right << std::setw(12) << applied << std::setw(12)
              << left << (left == due ? "  right" : "  WRONG") << '\n';
    if ((left == due) != way.right) as_expected = false;
  }
  return as_expected;
}

}  // namespace

int main() try {
  const char* url = std::getenv("TURNSTILE_POSTGRES_URL");  // NOLINT(concurrency-mt-unsafe): no other thread yet
  if (!url) {
    std::cerr
        << "set TURNSTILE_POSTGRES_URL to a database in which a schema may be made, as in postgresql://localhost/app\n";
    return 2;
  }
  Shared& shared = Shared::make();
  const auto payments = prepare(url);  // leaves no connection open that the processes would inherit
  const bool ended_well = run_both(url, shared, payments);
  const bool as_expected = ended_well && judge(url, shared);
  pqxx::connection connection{url};
  pqxx::nontransaction{connection}.exec("DROP SCHEMA turnstile_ways CASCADE");
  if (ended_well && !as_expected) std::cerr << "not all ways came out as they must\n";
  return as_expected ? 0 : 1;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
