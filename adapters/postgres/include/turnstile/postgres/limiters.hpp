#pragma once
// Limits over all processes, counted by PostgreSQL (13 and later). Each permit is a row with a lease, by the clock of
// the database. For programs that have the database but no token log in Kafka, and for small clusters.
// A process that holds a permit or waits for one queries the database once in every poll interval. Any other process
// reports 4 times a lease that it lives, which is a commit. Each transfer between processes is a commit. While a
// process has its share and uses it, a permit goes from one of its threads to the next without the database.
//
// Guarantee: permits with a running lease never exceed the limit. After a limit was lowered, none is granted until the
// permits in use fit. If a permit could not be renewed in time, Permit::lost() is set after 7/8 of the lease, before
// another process can get it. Each clock may be up to 6 % fast or slow. If the database's clock is *set* forward,
// leases end early. If a failover loses grants, the new server grants them again: until the old holder is told through
// Permit::lost(), at most until 7/8 of its lease, more permits than the limit can be in use.
//
// Only the threads of open_limiters() wait for the network. While the database is unavailable, no new permits are
// granted, and held permits end at their deadlines. One log line reports the outage, and the limiters recover by
// themselves.

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

/// The settings of limits that PostgreSQL counts.
struct LimiterSettings {
  /// A dead process's permits return after this time. A lease is renewed every quarter of it. At least 1 s.
  std::chrono::milliseconds lease{10'000};
  /// How soon a process notices free permits, other waiting processes, and a changed limit. At least 5 ms, at most an
  /// eighth of the lease.
  std::chrono::milliseconds poll_interval{20};
  /// The name of this process in the tables. Empty: "HOST:PID". A random number is added.
  std::string holder;
};

/// Starts two threads, and connects when the first limiter is opened; the database may be unavailable.
/// `settings.connections` does not count its one connection. When the last permit, limiter or Limiters is released, the
/// threads end and everything is returned. That takes a round trip, and up to 2 s if the database does not answer.
/// Limits are 1 to 1,000,000,000. Limiters::open() throws Error for a name that has not 1 to 255 bytes of UTF-8, or has
/// a NUL. If PostgreSQL rejects a statement of one limiter, that limiter gets no permits until it succeeds, one log
/// line names it, and the others go on. The same applies to a limiter whose row another session has locked for longer
/// than PostgresSettings::lock_timeout. If programs are configured differently, the lowest value of all live processes
/// is in effect, unless set_limit() was called. A process lives from its first limiter on until it releases the last,
/// or until its lease ends. If a lower value arrives, no permit is revoked, and none is granted until they fit. If no
/// process lives, the last value stays. A process of a build before migration 23 counts for one hour after that
/// migration, and for one hour after a start of its own that changes the value. Waiting callers of one process are
/// served in the order of their requests. Processes share by max-min fairness, and take turns if there are fewer
/// permits than processes.
/// It grants one permit at a time, and ignores the priority (Limiter::gives_several() is false). A dead process's
/// permits return only when its lease ends: on_claimed() and on_revoked() do nothing. Thread-safe.
/// If `logger` is null, it logs to stderr, as make_logger() does. Throws ConfigError for impossible settings.
std::shared_ptr<ports::Limiters> open_limiters(const PostgresSettings& settings, const LimiterSettings& limiters = {},
                                               std::shared_ptr<spdlog::logger> logger = nullptr);

/// Sets a limit as an operator. It takes effect in every process within its poll interval, overrides the configured
/// values, and outlives all processes. 0 starts nothing new. If the limit is lowered below the permits in use, none is
/// revoked, and none is granted until they fit.
/// Throws Error if no program has opened a limiter of this name, or if the limit is not 0 to 1,000,000,000. Also throws
/// what Admin throws.
void set_limit(const PostgresSettings& settings, const std::string& limiter, std::int64_t limit);
/// Removes the operator's limit: the configured values are in effect again.
void unset_limit(const PostgresSettings& settings, const std::string& limiter);

}  // namespace turnstile::postgres
