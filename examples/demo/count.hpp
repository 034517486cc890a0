#pragma once
// The count at the end of the demo: the results of the story, and whether they are correct.

#include <cstdint>

#include "board.hpp"
#include "ledger.hpp"
#include "screen.hpp"

namespace demo {

/// The results of the story. Times are in seconds.
struct Findings {
  std::int64_t published = 0;  ///< records, at the end
  std::int64_t distinct = 0;   ///< ids among them
  Ledger::Count effects{}, control_effects{};
  int control_most_running = 0;  ///< of the plain consumer
  int killed = 0;                ///< the killed consumer; 0: none yet
  std::int64_t running_when_killed = 0;
  double permits_back = 0, permits_back_after_rebalance = 0;
  double lowered_after = 0;
  int most_running = 0, most_when_lowered = 0;
};

/// The fates of all records that Kafka has delivered to a consumer.
struct Fates {
  std::int64_t delivered = 0;
  std::int64_t in_effect = 0;  ///< rows in PostgreSQL
  std::int64_t refused = 0;    ///< duplicates, as the framework counts
  std::int64_t died = 0;       ///< with the killed process
  std::int64_t handed_on = 0;  ///< as the consumers count
  [[nodiscard]] std::int64_t rest() const { return delivered - in_effect - refused - died - handed_on; }
};
Fates fates(const Findings& found, const Board& board);

/// Prints a line for each number. False if one is wrong.
bool judge(const Findings& found, const Board& board, Screen& screen);

}  // namespace demo
