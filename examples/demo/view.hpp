#pragma once
// What the demo's screen shows while the consumers work.

#include <cstdint>
#include <string>
#include <vector>

#include "board.hpp"
#include "count.hpp"
#include "ledger.hpp"
#include "processes.hpp"

namespace demo {

struct View {
  std::vector<std::string> lines{};  ///< on a terminal
  std::string brief{};               ///< elsewhere
};

/// Of the consumers with Turnstile, `seconds` after the demo began.
View consumer_view(const Board& board, const Processes& processes, const Findings& found, int limit, double seconds);
/// Of the plain consumers.
View control_view(const Board& board, const Processes& processes, const Ledger::Count& effects, double seconds);

/// The partitions of Slot::assigned.
std::vector<int> numbers_in(std::uint32_t bits);

}  // namespace demo
