#pragma once
// Replays a whole token log, and compares it with what its members have stored about it.

#include <cstdint>
#include <string>
#include <vector>

#include "turnstile/tokens.hpp"

namespace turnstile {

/// What the replay of a token log shows.
struct TokenAudit {
  /// A position at which members got permits although more than the limit were held. Or, with a limit of 0, the end of
  /// part 0 of a divided log: permits of the limiter are still held there, and its own part grants it already.
  struct Excess {
    std::int64_t position = 0;  ///< of the record
    std::int64_t time_ms = 0;   ///< of the record, in milliseconds since 1970
    std::string limiter;        ///< the limiter's name
    std::int64_t held = 0;      ///< permits that all members held after the record
    std::int64_t limit = 0;     ///< the limit in effect
  };
  /// A state that differs from the replay's.
  struct Difference {
    std::int64_t position = 0;  ///< the state is the one after this position
    std::string what;           ///< "a snapshot", or the member that has another state, for people
  };
  std::int64_t begin = 0;               ///< the first position that the log still has
  std::int64_t end = 0;                 ///< 1 past its last position
  std::int64_t known_from = -1;         ///< the state is known after this position; what was held before cannot be told
  bool known = false;                   ///< false: no snapshot continues in the log, so nothing can be told
  std::int64_t first_time_ms = 0;       ///< of the first record that was checked; 0: none was
  std::int64_t records = 0;             ///< records that were checked
  std::int64_t compared = 0;            ///< states of snapshots and members that were compared
  std::vector<Excess> excesses;         ///< at most 1,000
  std::vector<Difference> differences;  ///< at most 1,000
  std::vector<Excess> lowered;  ///< more than the limit was held already at `known_from`: it may have been lowered
};

/// Reads the log from its beginning to its end at the time of the call. It writes nothing. Throws BrokerError,
/// TokenLogTrimmed if records are deleted meanwhile, and TokenLogBroken.
/// `others` opens the other parts of a log that is divided: the findings are those of all parts, in the order of the
/// parts; the first and last positions are those of part 0; it is known from the first position of each. Without
/// `others` it throws TokenLogBroken for such a log.
TokenAudit audit_token_log(ports::TokenLog& log, const TokenLogParts& others = {});

}  // namespace turnstile
