#pragma once
// Limits over all processes, with PostgreSQL (13 and later) as the one who counts: each permit is a row with a lease, by the
// clock of the database. For programs that have the database but no token log in Kafka, and for small clusters: a process that
// holds a permit or waits for one asks the database once in every poll interval, and each change of hands is a commit. While a
// process has its share and uses it, a permit goes from one of its threads to the next without the database.
//
// What is promised: unexpired permits never exceed the limit (unless it was lowered: then none is granted until it fits). A
// permit whose renewal did not come through in time is told so by Permit::lost(), an eighth of the lease before anybody else can
// have it. The clocks may run at speeds that differ by a tenth; a database clock that is *set* forward ends leases early.
//
// Nothing here waits for the network but open_limiters()'s threads: with the database away no new permits come, those held
// end at their deadlines, one log line says so, and it goes on by itself later.

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "turnstile/config.hpp"
#include "turnstile/ports/limiter.hpp"

namespace spdlog {
class logger;
}

namespace turnstile::postgres {

/// How limits are counted in PostgreSQL.
struct LimiterSettings {
  /// What a process that died held comes back after this time. Renewed every quarter of it. At least 1 s.
  std::chrono::milliseconds lease{10'000};
  /// How soon it is noticed that permits are free, that others wait, that a limit was changed. At least 5 ms, at most an eighth of the
  /// lease.
  std::chrono::milliseconds poll_interval{20};
  /// How people see this process in the tables; empty: "HOST:PID". A random number is added.
  std::string holder;
};

/// Starts two threads, and connects when the first limiter is opened; the database may be away. Its one connection is not counted in
/// `settings.connections`. The last permit, limiter or Limiters to go ends the threads and gives everything back, which
/// takes a round trip, and at most 2 s when the database is away or does not answer.
/// Limits are 1 to 1,000,000,000. Of programs that are configured differently, the one that started last decides, unless
/// set_limit() has. Waiters of one process are served in the order in which they asked; processes share by max-min fairness, and
/// take turns when there are fewer permits than processes.
/// One permit at a time, and no priority (Limiter::gives_several() is false). What a dead process held comes back with its lease alone:
/// on_claimed() and on_revoked() do nothing. Thread-safe.
/// `logger` null: to stderr, as make_logger() does. Throws ConfigError for settings that cannot be.
std::shared_ptr<Limiters> open_limiters(const PostgresSettings& settings, const LimiterSettings& limiters = {},
                                        std::shared_ptr<spdlog::logger> logger = nullptr);

/// What an operator says: it counts in all processes, within a poll interval of each, before what they are configured with, and
/// survives them all. 0 lets nothing new start. Lowered below what is in use: nothing is revoked, nothing granted until it fits.
/// Throws Error when no program has opened a limiter of that name, or the limit is not 0 to 1,000,000,000; and as Admin
/// does.
void set_limit(const PostgresSettings& settings, const std::string& limiter, std::int64_t limit);
/// What the programs are configured with counts again.
void unset_limit(const PostgresSettings& settings, const std::string& limiter);

}  // namespace turnstile::postgres
