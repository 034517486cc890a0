#pragma once
// The snapshots of a token log: where a member begins, and up to where the log is cut off.

#include <cstdint>
#include <optional>
#include <string>

#include "support/run_log.hpp"
#include "tokens/member.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

class DomainSnapshots {
 public:
  /// A snapshot is stored each time the log has passed a multiple of `every`.
  DomainSnapshots(ports::TokenLog& log, const RunLog& run_log, std::int64_t every)
      : log_(log), run_log_(run_log), every_(every) {}

  /// The newest readable snapshot of this part from which the log continues, or `first`, the state before the log's first
  /// record. Throws TokenLogBroken if there is no such snapshot, and the log does not begin at 0. If the newest snapshots
  /// belong to an earlier topic of this name, it reports once which limits operators had set there. It may read the log:
  /// seek() must follow.
  tokens::State newest(const tokens::State& first);
  /// Stores a snapshot and trims the log, if it is time.
  void keep(const tokens::State& state, const tokens::Member& member);

 private:
  [[nodiscard]] std::optional<tokens::State> at_end(tokens::State state);
  void look_at_other_parts(std::optional<tokens::State>& earlier, const tokens::State& first);
  void report_recreated(const tokens::State& earlier) const;

  ports::TokenLog& log_;
  const RunLog& run_log_;
  const std::int64_t every_;
  tokens::Position saved_ = tokens::kNowhere, trimmed_ = tokens::kNowhere;
};

/// "turnstile limits set --ahead psp 0; …": the commands for the limits that operators have set. They also work before
/// a member has opened the limiter in the new log. Empty: none.
std::string commands_of_operators(const tokens::State& state);

}  // namespace turnstile::detail
