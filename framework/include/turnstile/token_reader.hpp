#pragma once
// A token log seen from outside: the holders of permits, the records of the log, and the limits that operators set. A
// reader is not a member: it holds no permits, keeps no lease, and no member waits for it. For the command line and for
// your own tools.
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

/// A member, as it described itself in the log.
struct TokenMember {
  std::uint64_t id = 0;   ///< its number in the log
  std::string client,     ///< empty if unknown
      host;               ///< empty if unknown
  std::uint32_t pid = 0;  ///< of the process
};

/// A record of a token log, and its effect.
struct TokenRecord {
  /// Permits that a member got or lost by this record.
  struct Change {
    std::string limiter;      ///< the limiter's name
    TokenMember member;       ///< the member that got or lost permits
    std::int64_t before = 0,  ///< how many it had
        after = 0;            ///< how many it has now
  };
  std::int64_t position = 0;  ///< of the record in the log
  /// Milliseconds since 1970, by the clock of the writer or of the broker, but never before the previous record. 0:
  /// unknown.
  std::int64_t time_ms = 0;
  std::optional<TokenMember> written_by;  ///< absent: not written by a member (any program can set limits)
  std::string kind;                       ///< "keep", "limit set"; "unknown" for a record that is no event
  std::string details;                    ///< the event's fields, for people
  /// "applied", "duplicate", "old epoch", "stranger", "revived", "stale", "not allowed", "unknown". Empty if the log
  /// was cut off before this position, so that the outcome is unknown.
  std::string outcome;
  std::vector<Change> changes;         ///< members that have more or fewer permits after this record
  std::vector<TokenMember> drained;    ///< lost all their partitions without a revocation
  std::vector<TokenMember> reclaimed;  ///< the database has fenced them, so their permits returned
  std::optional<TokenMember> ended;    ///< left, or expired
};

/// Not thread-safe. Every function may throw BrokerError. It may throw TokenLogBroken if records were deleted while the
/// reader read them.
class TokenReader {
 public:
  /// Asks the log for its first and last position. `others` opens the other parts of a log that is divided; without it,
  /// permits() of such a log throws TokenLogBroken.
  explicit TokenReader(std::unique_ptr<ports::TokenLog> log, TokenLogParts others = {});
  ~TokenReader();

  /// "topic 'x' at host:9092", for messages.
  [[nodiscard]] const std::string& name() const;
  /// The first position in the log.
  [[nodiscard]] std::int64_t begin() const;
  /// 1 past the last position at the time of the call.
  [[nodiscard]] std::int64_t end() const;

  /// Reads up to `from`, exclusive. The state at that position comes from the newest snapshot below it, or from the
  /// beginning of the log. If neither exists, reading begins at `from`, and the state is known only after known_from().
  void start(std::int64_t from);
  /// The state is known after this position and all later ones. -1: after each position. Absent: after none, because
  /// the log was cut off and no snapshot is left.
  [[nodiscard]] std::optional<std::int64_t> known_from() const;
  /// Of the last record that was read; at first `from` - 1.
  [[nodiscard]] std::int64_t position() const;

  /// The place of a record that next() has not returned yet.
  struct Upcoming {
    std::int64_t position = 0,  ///< in the log
        time_ms = 0;            ///< milliseconds since 1970; 0: unknown
  };
  /// Asks the log for its end. Throws BrokerError if the log does not answer. peek() does not: without a broker it
  /// returns nothing, as at the end of the log.
  void require_available() const;
  /// The next record, if there is one within `timeout`.
  std::optional<Upcoming> peek(std::chrono::milliseconds timeout);
  /// Reads the record that peek() returned, and describes it.
  TokenRecord next();
  /// Reads all records up to `position`, inclusive. Throws BrokerError if they do not arrive.
  void read_to(std::int64_t position);

  /// The state after position(). In a divided log also that of the other parts: the first call opens them and reads them
  /// to their ends, or from their beginnings after a start at begin(), for time_of(). Throws TokenLogBroken if one is
  /// unknown.
  [[nodiscard]] PermitsView permits() const;
  /// The state after position() of this reader's own part alone, as it may have been long ago.
  [[nodiscard]] PermitsView permits_of_part() const;
  /// The time of a record of this part that was read, for the last million records of each part. 0: unknown.
  [[nodiscard]] std::int64_t time_of(std::int64_t position, std::uint32_t part) const;
  /// The same of this reader's own part: see parts().
  [[nodiscard]] std::int64_t time_of(std::int64_t position) const;

  /// The number of parts of the log, as far as it was read. 1: it is not divided. Records, positions and the state of
  /// this reader are those of part 0, or of the part that home_of() chose. In a divided log part 0 grants no permits.
  [[nodiscard]] std::uint32_t parts() const;
  /// Of a divided log: a reader of the part in which this limiter lives, not started. This reader must have read that the
  /// log is divided.
  [[nodiscard]] std::unique_ptr<TokenReader> home_of(const std::string& limiter) const;
  /// As permits(), but only of part 0 and of the part in which this limiter lives: another part that is truncated does not
  /// matter.
  [[nodiscard]] PermitsView permits_at_home_of(const std::string& limiter) const;
  /// Reads the other parts that are open up to now, for permits().
  void refresh();
  /// Divides a log of one part, which must have that many partitions. The number cannot be changed later. Does nothing
  /// if the log has that many parts already. Waits up to `timeout`. False: it was not read back in time, and may come
  /// into effect later. Throws Error if why_not_divided() has a reason.
  bool divide(std::uint32_t parts, std::chrono::milliseconds timeout);
  /// Why the log cannot be divided into so many parts now, and what to do. Empty: it can.
  [[nodiscard]] std::string why_not_divided(std::uint32_t parts) const;
  /// After a division: the limiters of which permits are still in use in part 0. They, and the others of the same parts,
  /// are not granted before those have returned.
  [[nodiscard]] std::vector<std::string> still_moving() const;

  /// As TokenDomain::set_limit. If another program sets the limit at the same time, this function notices that and sets
  /// it again. False: it was not read back in time, and may come into effect later. Throws Error if the log's members
  /// would not accept the value. `by`: who sets it, for PermitsView::limit_changes; its first 255 bytes are used.
  bool set_limit(const std::string& limiter, std::optional<std::int64_t> limit, std::chrono::milliseconds timeout,
                 const std::string& by = {});
  /// The error of the last failed write. Empty if no write failed.
  [[nodiscard]] const std::string& why_not_written() const;

 private:
  struct Impl;
  [[noreturn]] static void fail_truncated(const Impl& part);
  void must_be_known() const;
  explicit TokenReader(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

/// The limiter whose name is most similar to a misspelt name.
std::optional<std::string> nearest_limiter(const PermitsView& view, std::string_view name);

}  // namespace turnstile
