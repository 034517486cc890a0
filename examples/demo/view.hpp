#pragma once
// The demo's view while the consumers work.

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
  std::string brief{};               ///< without a terminal
};

/// For the consumers with Turnstile, `seconds` after the start of the demo.
View consumer_view(const Board& board, const Processes& processes, const Findings& found, int limit, double seconds);
/// For the plain consumers.
View control_view(const Board& board, const Processes& processes, const Ledger::Count& effects, double seconds);

/// The partitions of Slot::assigned.
std::vector<int> numbers_in(std::uint32_t bits);

}  // namespace demo
