#pragma once
// The cluster token service over a log. A limit applies to all members of a domain, and a dead member's permits return.
// Over Kafka: turnstile/kafka/limiters.hpp.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/ports/limiter.hpp"
#include "turnstile/ports/token_log.hpp"

namespace spdlog {
class logger;
}

namespace turnstile {

/// The name of a process wherever it is shown: "billing@host1:4711".
std::string process_name(std::string_view client, std::string_view host, std::uint32_t pid);

/// The settings of a member. The domain rejects a value out of range: halted() reports it, and nothing starts.
struct TokenSettings {
  std::string client = "turnstile";  ///< this member in `turnstile permits`; its first 255 bytes are used
  /// A member that is silent for its lease loses its permits. It stops using them after 7/8 of the lease, by its own
  /// clock. 100 ms to 24 h. A member sends a Keep four times in each lease. Members may have different leases.
  std::chrono::milliseconds lease{10'000};
  /// Shares are proportional to it. 1 to 1,000.
  std::uint32_t weight = 1;
  /// Permits of a dead consumer return only when its lease ends, even if the database has fenced it. In effect for a
  /// limiter as soon as one member requests it.
  bool strict = false;
  /// If there are more members than permits: how long a member holds a permit before it goes to a member without one.
  std::chrono::milliseconds turn{100};
  /// Permits of each limiter that this process may use while the log is unavailable for longer than its lease. 0: it
  /// waits. They are set aside from the limit for `reserve_for` processes; further processes get none.
  std::uint32_t reserve = 0,  ///< how many
      reserve_for = 0;        ///< for how many processes

  /// For how long the reserve may be used after the log was last available. The reserve of a dead process counts as
  /// used for the same time, because no member can know that the process is dead. Only then another process gets it. Up
  /// to 49 days.
  std::chrono::milliseconds reserve_time{3'600'000};
  /// How many limiters the domain can have, 1 to 16,384. The largest value of any member is in effect. 0: 1,024, unless
  /// another member requests more.
  std::uint32_t most_limiters = 0;
  /// The two oldest members that write save a snapshot of the state each time the log has passed a multiple of this
  /// number. All members must have the same value, because they compare their states there.
  std::int64_t snapshot_every = 4'096;
};

/// The holders of permits, as of the last record read.
struct PermitsView {
  /// A member, and its permits of a limiter.
  struct Holder {
    std::uint64_t member = 0;  ///< its number in the log
    std::string client,        ///< client.id, or else the group
        host;                  ///< the name of its machine
    std::uint32_t pid = 0;     ///< of the process
    std::int64_t held = 0,     ///< its permits
        busy = 0,              ///< of these, permits in use
        wants = 0,             ///< how many it requests
        share = 0;             ///< how many it is entitled to
    /// It lost its partitions without a revocation. Its permits still count, and it is granted no more.
    bool draining = false;
    std::int64_t held_since = -1;  ///< position at which it last got a permit after having none; -1: never
    std::int64_t configured = 0;   ///< the limit in its configuration; 0: none
    bool strict = false;           ///< its permits return only when its lease ends, even if the database has fenced it
    std::int64_t heard_at = -1;    ///< position of its last accepted event
    std::chrono::milliseconds lease{0};  ///< after this time of silence its permits are reassigned
    std::int64_t reserved = 0;           ///< its part of `set_aside`, for use while the log is unavailable to it
  };
  /// A limiter, and the holders of its permits.
  struct Entry {
    std::string limiter;                      ///< the limiter's name
    std::uint32_t part = 0;                   ///< of the log, where it lives; its holders' positions are of this part
    std::int64_t limit = 0;                   ///< the limit in effect
    bool moving = false;                      ///< after a division: nothing is granted before others have returned
    std::optional<std::int64_t> set;          ///< by an operator; overrides the configured values
    std::vector<std::int64_t> configured;     ///< by the members; the lowest is in effect
    std::int64_t set_aside = 0;               ///< of the limit, for members without the log (TokenSettings::reserve)
    std::int64_t reserved = 0;                ///< of set_aside, by all, including processes that died
    std::vector<Holder> holders;              ///< in the order of their numbers in the log
    [[nodiscard]] std::int64_t held() const;  ///< by all members, including those that drain
    /// Permits in use, over all members.
    [[nodiscard]] std::int64_t busy() const;
    /// Permits that would be used at once if they were granted.
    [[nodiscard]] std::int64_t waiting() const;
  };
  /// A limit that an operator or a program has set.
  struct LimitChange {
    std::int64_t position = -1;         ///< in the part
    std::uint32_t part = 0;             ///< of the log
    std::string limiter;                ///< the limiter's name
    std::optional<std::int64_t> limit;  ///< absent: unset
    std::string by;                     ///< as TokenReader::set_limit had it; empty: unknown
    std::int64_t at_ms = 0;             ///< in milliseconds since 1970, by the clock of the writer; 0: unknown
  };
  std::int64_t position = -1;   ///< of the last record read; -1: none
  std::vector<Entry> limiters;  ///< in the order of their names
  /// The last 100, the oldest first. Without those that a build from before this list has read from its snapshot.
  std::vector<LimitChange> limit_changes;
};

/// Limiters that count over a domain. Thread-safe.
/// open() accepts limits of 1 to 1,000,000,000 and names of 1 to 255 bytes. It does not wait: the permits come once
/// this process is a member. It throws Error if the domain has the largest number of limiters already (most_limiters).
/// A limiter leaves the domain when no process uses it and no permit of it is held, unless an operator has set its
/// limit.
class TokenDomain : public ports::Limiters {
 public:
  /// The permits of all limiters of the domain, including those that this process does not use.
  [[nodiscard]] virtual PermitsView permits() const = 0;
  /// Sets a limit as an operator: 0 (paused) to 1,000,000,000; std::nullopt unsets it. It overrides the configured
  /// values, also those of members that join later, and stays in effect until it is unset.
  /// Waits up to `timeout` until the new value is read back. False: it was not read back in time, or there is no such
  /// limiter to unset. Throws Error for a number out of range.
  virtual bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit,
                         std::chrono::milliseconds timeout) = 0;
  /// Waits up to `timeout` until this process is a member.
  virtual bool wait_until_joined(std::chrono::milliseconds timeout) = 0;
  /// Why nothing starts any more permanently, and what to do: the log is damaged, or this member cannot follow it.
  /// Empty if there is no such problem, even while the log is unavailable, or if only one part of a divided log has
  /// rejected this process: health() reports it.
  [[nodiscard]] virtual std::string halted() const = 0;
  /// Whether the log can be read, and this process is a member.
  [[nodiscard]] LimitersHealth health() const override = 0;
};

/// Opens a part of a token log: each call another object. Part 0 is the whole log until the log is divided
/// (`turnstile limits divide`). Any thread may call it. It never returns null, and may throw any exception. A call for a
/// part above 0 can last longer than the domain: the function must own all that it uses.
using TokenLogParts = std::function<std::unique_ptr<ports::TokenLog>(std::uint32_t part)>;

/// Joins the domain of this log. It reads the newest snapshot on the calling thread, then follows the log on its own
/// thread. It leaves the domain when the last reference to it, its limiters and their permits is dropped; that takes up
/// to 2 s.
/// In a divided log it joins the parts of the limiters that it opens: open() and set_limit() of the first limiter of a
/// part wait until that part is open, and throw what `open_log` throws. permits() then shows only the parts that this
/// process has joined.
/// If `logger` is null, it logs to stderr. Throws BrokerError if the log cannot be read, and TokenLogBroken if it cannot
/// be understood.
std::shared_ptr<TokenDomain> join_token_domain(TokenLogParts open_log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger);

/// As above, for a log that is not divided. `log` must not be null.
std::shared_ptr<TokenDomain> join_token_domain(std::unique_ptr<ports::TokenLog> log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile
