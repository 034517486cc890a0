#pragma once
// The cluster token service over a log: a limit holds over all members of a domain, and what a dead one held comes back.
// Over Kafka: turnstile/kafka/limiters.hpp.

#include <chrono>
#include <cstdint>
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

/// How a process is named wherever it is shown: "billing@host1:4711".
std::string process_name(std::string_view client, std::string_view host, std::uint32_t pid);

/// One that is out of range is refused by the domain: halted() says so, and nothing starts.
struct TokenSettings {
  std::string client = "turnstile";  ///< what `turnstile permits` calls this member; the first 255 bytes of it
  /// A member that is silent for so long has lost its permits; it stops using them an eighth sooner, by its own clock.
  /// 100 ms to 24 h. A Keep goes out four times a lease. Members may have different ones.
  std::chrono::milliseconds lease{10'000};
  /// Shares are in proportion; 1 to 1,000.
  std::uint32_t weight = 1;
  /// Permits held by a dead consumer come back when its lease ends, even if the database has fenced it. Holds for a limiter as soon
  /// as one member says so.
  bool strict = false;
  /// How long a permit is held before it goes to a member that has none, where members outnumber permits.
  std::chrono::milliseconds turn{100};
  /// Permits of each limiter that this process may use while the log is out of reach, for longer than its lease lasts; 0: it
  /// waits. They are set aside of the limit, for so many processes; who comes after these has none.
  std::uint32_t reserve = 0,  ///< how many
      reserve_for = 0;        ///< for how many processes

  /// So long after the log was last in reach. The reserve of a process that died counts as used for as long, and only then is
  /// another's: nobody can know that it is dead. Up to 49 days.
  std::chrono::milliseconds reserve_time{3'600'000};
  /// Limiters that the domain can have, 1 to 16,384; the most that a member says holds. 0: 1,024, unless another one says more.
  std::uint32_t most_limiters = 0;
  /// A snapshot of the state is kept, by the two oldest members, each time the log has passed a multiple of this. The same in all
  /// members, since they compare their states there.
  std::int64_t snapshot_every = 4'096;
};

/// Who holds what, as of the last record read.
struct PermitsView {
  /// A member, and what it has of one limiter.
  struct Holder {
    std::uint64_t member = 0;  ///< what the log calls it
    std::string client,        ///< client.id, else the group
        host;                  ///< the name of its machine
    std::uint32_t pid = 0;     ///< of the process
    std::int64_t held = 0,     ///< permits that it has
        busy = 0,              ///< of these, those under which something runs
        wants = 0,             ///< how many it asks for
        share = 0;             ///< how many it is entitled to
    /// Lost its partitions without a word: what it holds still counts, and nothing more is granted.
    bool draining = false;
    std::int64_t held_since = -1;  ///< position at which it last went from none to some; -1: never
    std::int64_t configured = 0;   ///< what its configuration says; 0: nothing
    bool strict = false;           ///< what it holds comes back by its lease alone, also if the database has fenced it
    std::int64_t heard_at = -1;    ///< position of its last event that counted
    std::chrono::milliseconds lease{0};  ///< silent for so long after that, and what it holds is others'
    std::int64_t reserved = 0;           ///< of set_aside, what it may use while it is cut off
  };
  /// A limiter, and who holds its permits.
  struct Entry {
    std::string limiter;                      ///< the limiter's name
    std::int64_t limit = 0;                   ///< the limit in effect
    std::optional<std::int64_t> set;          ///< by an operator; goes before what configurations say
    std::vector<std::int64_t> configured;     ///< by member; the lowest holds
    std::int64_t set_aside = 0;               ///< of the limit, for members that are cut off (TokenSettings::reserve)
    std::int64_t reserved = 0;                ///< of set_aside, by all, also by processes that ended without a word
    std::vector<Holder> holders;              ///< by the number that the log calls them
    [[nodiscard]] std::int64_t held() const;  ///< by all, also by those that drain
    /// Permits under which something runs, over all members.
    [[nodiscard]] std::int64_t busy() const;
    /// Permits that would be used at once if they were granted.
    [[nodiscard]] std::int64_t waiting() const;
  };
  std::int64_t position = -1;   ///< of the last record read; -1: none
  std::vector<Entry> limiters;  ///< in the order of their names
};

/// Limiters that count over a domain. Thread-safe. open() takes limits of 1 to 1,000,000,000 and names of 1 to 255 bytes, and does not
/// wait: its permits come once this process is a member. It throws Error for a name more than the domain can have (most_limiters); a
/// name leaves the domain with the last limiter and permit of it in all processes, unless an operator has set its limit.
class TokenDomain : public Limiters {
 public:
  /// Of all limiters of the domain, also of those that this process does not use.
  [[nodiscard]] virtual PermitsView permits() const = 0;
  /// An operator's word on a limit, 0 (paused) to 1,000,000,000; std::nullopt unsets it. It holds until it is unset, also for members
  /// that come later, before what they are configured with. Waits until it is read back, at most so long; false: it was not
  /// (yet), or there is no such limiter to unset. Throws Error for a number out of range.
  virtual bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit,
                         std::chrono::milliseconds timeout) = 0;
  /// Waits until this process is a member, at most so long.
  virtual bool wait_until_joined(std::chrono::milliseconds timeout) = 0;
  /// Why nothing starts any more, for good, and what to do: the log is damaged, or this member cannot follow it. Empty while all is
  /// well, also while the log is out of reach.
  [[nodiscard]] virtual std::string halted() const = 0;
  /// Whether the log can be followed, and this process is a member.
  [[nodiscard]] LimitersHealth health() const override = 0;
};

/// Joins the domain of this log, on a thread of its own, after reading the newest snapshot on this one. Leaves it when the last one
/// lets go of it, of its limiters and their permits; that takes 2 s at most. `log`: not null; `logger` null: one of its own. Throws BrokerError
/// when the log cannot be read, TokenLogBroken when it cannot be understood.
std::shared_ptr<TokenDomain> join_token_domain(std::unique_ptr<TokenLog> log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger);

}  // namespace turnstile
