#pragma once
// What a member of a token domain logs. It logs a line for each change, not for each round.

#include <cstdint>
#include <string>

#include "support/run_log.hpp"
#include "tokens/member.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

/// What was logged last of a limiter.
struct ReportedLimiter {
  std::int64_t limit = 0;  ///< in effect
  bool refused = false;
};

class DomainReports {
 public:
  DomainReports(const ports::TokenLog& log, const RunLog& run_log, const TokenSettings& settings)
      : log_(log), run_log_(run_log), lease_(settings.lease), has_reserve_(settings.reserve > 0) {}

  void write_failed(const std::string& why);
  void written() { write_failure_.clear(); }
  /// Why writing fails. Empty: it does not.
  [[nodiscard]] const std::string& write_failure() const { return write_failure_; }
  void snapshot_unreadable(const std::string& why);
  /// Records were trimmed before they were read; `why` names them.
  void begins_anew(tokens::Position from, const std::string& why);
  /// `count`: how often other members have expired this one.
  void expired(std::uint64_t count);
  /// Whether it was not logged yet that handlers under a limit can (not) start.
  [[nodiscard]] bool is_news(bool open) const { return open != was_open_; }
  /// `reserved`: permits of its reserves. `taken`: how often one of them was taken.
  void opened_or_closed(bool open, const tokens::Member& member, tokens::Count reserved, std::uint64_t taken);
  /// `configured`: the limit in this process.
  void limiter(const std::string& name, std::int64_t configured, ReportedLimiter& reported, const tokens::State& state,
               const tokens::Member& member) const;
  [[nodiscard]] std::string too_many_limiters(const std::string& name, std::size_t most) const;

 private:
  const ports::TokenLog& log_;
  const RunLog& run_log_;
  const std::chrono::milliseconds lease_;
  const bool has_reserve_;
  std::string write_failure_;
  std::string snapshot_failure_;
  std::uint64_t expired_ = 0;
  std::uint64_t taken_of_reserve_ = 0;
  bool was_open_ = false;
};

}  // namespace turnstile::detail
