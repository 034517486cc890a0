#pragma once
// The count at the end of the demo: what the story found, and whether it is as it must be.

#include <cstdint>

#include "board.hpp"
#include "ledger.hpp"
#include "screen.hpp"

namespace demo {

/// What the story sees on its way. Times are in seconds.
struct Findings {
  std::int64_t published = 0;  ///< records, in the end
  std::int64_t distinct = 0;   ///< ids among them
  Ledger::Count effects{}, control_effects{};
  int control_most_running = 0;  ///< of the plain consumer
  int killed = 0;                ///< the consumer that was killed; 0: none yet
  std::int64_t running_when_killed = 0;
  double permits_back = 0, permits_back_after_rebalance = 0;
  double lowered_after = 0;
  int most_running = 0, most_when_lowered = 0;
};

/// What became of every record that Kafka has delivered to a consumer.
struct Fates {
  std::int64_t delivered = 0;
  std::int64_t in_effect = 0;  ///< rows in PostgreSQL
  std::int64_t refused = 0;    ///< duplicates, by the framework's account
  std::int64_t died = 0;       ///< with the process that was killed
  std::int64_t handed_on = 0;  ///< by the consumers' own account
  [[nodiscard]] std::int64_t rest() const { return delivered - in_effect - refused - died - handed_on; }
};
Fates fates(const Findings& found, const Board& board);

/// Prints one line for each figure. False when one is not as it must be.
bool judge(const Findings& found, const Board& board, Screen& screen);

}  // namespace demo
