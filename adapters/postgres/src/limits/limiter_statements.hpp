#pragma once
// The SQL of limiters. Each is a single statement, and may be repeated.

#include <string>

namespace turnstile::postgres {

struct LimiterStatements {
  explicit LimiterStatements(const std::string& schema);

  std::string lock_timeout;  ///< (milliseconds) of the transaction
  std::string live;          ///< (holder, lease in microseconds): this process lives, and its values count
  std::string values;        ///< (holder) -> limiters whose values it has declared
  std::string forget;        ///< removes processes that ended long ago, with their values
  std::string make;          ///< (name, value): if there is none of that name
  std::string lower;         ///< (name, value): to this value, if it is higher
  std::string share;         ///< (name): before declare, so that no settling overlooks it
  std::string declare;       ///< (name, value, holder)
  std::string lock;          ///< (name): before settle, so that it sees what others have declared
  std::string settle;        ///< (name): the lowest value that counts is the limit
  std::string tidy;          ///< (name): removes the waits of processes that ended long ago
  std::string view;          ///< (name) -> see ViewColumn
  std::string take;          ///< (limiter, version, count, holder, lease in microseconds) -> slot, generation
  std::string sweep;         ///< (limiter): expired permits become free ones
  std::string give_back;     ///< (limiter, slots, generations, holder)
  std::string renew;  ///< (limiters, slots, generations, holder, lease in microseconds) -> limiter, slot, generation
  std::string keep_only;  ///< (limiters, slots, generations, holder): returns permits that the holder does not know
  std::string await;      ///< (limiter, holder, waiting, microseconds that it counts, 1: as if it started now)
  std::string no_wait;    ///< (limiter, holder)
  std::string leave;      ///< (holder): all of its waits
  std::string end;        ///< (holder): it does not live any more
  std::string order;      ///< (name, limit)
  std::string unorder;    ///< (name)
};

/// Columns of `view`: a row for each holder, or one row with a null holder.
enum class ViewColumn : int {
  id,
  version,
  limit,
  ordered,
  overdue,
  unsettled,
  holder,
  held,
  held_us,
  waiting,
  waited_us
};

}  // namespace turnstile::postgres
