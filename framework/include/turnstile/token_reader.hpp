#pragma once
// A token log seen from outside: who holds what, what was written, and an operator's word on a limit. No member: it holds no
// permits, keeps no lease, and nobody waits for it. For the command line and for tools of one's own.
//
//   TokenReader reader{kafka::find_token_log(settings, "orders.tokens", nullptr)};
//   reader.start(reader.end());
//   for (const auto& limiter : reader.permits().limiters) …

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/tokens.hpp"

namespace turnstile {

/// A member, as it introduced itself.
struct TokenMember {
  std::uint64_t id = 0;   ///< what the log calls it
  std::string client,     ///< empty where nothing is known of it
      host;               ///< empty where nothing is known of it
  std::uint32_t pid = 0;  ///< of the process
};

/// One record of a token log, and what it meant.
struct TokenRecord {
  /// Permits that changed hands with this record.
  struct Change {
    std::string limiter;      ///< the limiter's name
    TokenMember member;       ///< whose permits they are
    std::int64_t before = 0,  ///< how many it had
        after = 0;            ///< how many it has
  };
  std::int64_t position = 0;  ///< of the record in the log
  std::int64_t time_ms = 0;   ///< since 1970, by the clock of who wrote it or of the broker, but never before the
                              ///< record before it; 0: unknown
  std::optional<TokenMember> written_by;  ///< nothing where no member speaks: limits are set by anybody
  std::string kind;                       ///< "keep", "limit set"; "unknown" for what is no event
  std::string details;                    ///< the event's fields, for people
  /// "applied", "duplicate", "old epoch", "stranger", "revived", "stale", "not allowed", "unknown"; empty where the log was cut
  /// off before this position, so that it cannot be told.
  std::string outcome;
  std::vector<Change> changes;         ///< who has more or fewer permits since
  std::vector<TokenMember> drained;    ///< lost all their partitions without a word
  std::vector<TokenMember> reclaimed;  ///< what they held came back, since the database has fenced them
  std::optional<TokenMember> ended;    ///< left, or expired
};

/// Not thread-safe. Everything may throw BrokerError, and TokenLogBroken when records went missing while they were read.
class TokenReader {
 public:
  /// Asks where the log begins and ends.
  explicit TokenReader(std::unique_ptr<TokenLog> log);
  ~TokenReader();

  /// "topic 'x' at host:9092", for messages.
  [[nodiscard]] const std::string& name() const;
  /// First position that the log still has.
  [[nodiscard]] std::int64_t begin() const;
  /// One past the last, as it was when it was asked.
  [[nodiscard]] std::int64_t end() const;

  /// Reads up to `from`, exclusively: what the log means there comes from the newest snapshot below, or from the log's beginning. Where
  /// neither is left, reading begins at `from`, and what it means is known from known_from() on.
  void start(std::int64_t from);
  /// What holds is known after this position and all later ones; -1: after each. Nothing: after none, since the log was cut off and
  /// no snapshot is left.
  [[nodiscard]] std::optional<std::int64_t> known_from() const;
  /// Of the last record read; from - 1 at first.
  [[nodiscard]] std::int64_t position() const;

  /// The place of a record that was not taken yet.
  struct Upcoming {
    std::int64_t position = 0,  ///< in the log
        time_ms = 0;            ///< since 1970; 0: unknown
  };
  /// The next record, if one comes within `timeout`.
  std::optional<Upcoming> peek(std::chrono::milliseconds timeout);
  /// Takes what peek() showed, and tells of it.
  TokenRecord next();
  /// Takes all up to `position`, inclusively. Throws BrokerError when they do not come.
  void read_to(std::int64_t position);

  /// After position(). Throws TokenLogBroken where it is not known.
  [[nodiscard]] PermitsView permits() const;
  /// Of a record that was read (the last million are known); 0: unknown.
  [[nodiscard]] std::int64_t time_of(std::int64_t position) const;

  /// As TokenDomain::set_limit. A word of somebody else's that comes between is seen, and then this one is said again. False: it was
  /// not read back in time, and may yet come to hold. Throws Error when the log's members would not take it.
  bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit, std::chrono::milliseconds timeout);
  /// Why writing failed last; empty when it did not.
  [[nodiscard]] const std::string& why_not_written() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// The limiter whose name is nearest to a misspelt one.
std::optional<std::string> nearest_limiter(const PermitsView& view, std::string_view name);

}  // namespace turnstile
