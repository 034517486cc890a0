#pragma once
// A token log that is divided into parts while processes use it, under chaos. Each process is the shipped DividedDomain
// with its members and pools; the simulator runs their rounds and the mover in place of their threads. During all of it:
//
//   capacity  The permits of a limiter that are held in all parts together never exceed its limit.
//   outside   Running handlers never need more permits than the limit. Handlers after their process's own deadline, and
//             handlers that a fence keeps from committing, do not count.
//   snapshot  A snapshot is the state that was saved.
//   moved     After chaos the log is divided, nobody has permits in part 0, and each limiter is granted in its home.
//   progress  Each process that wants a permit gets one.
//   quiet     Once no process wants anything, nothing is held, and all have reached the same states.

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>

namespace turnstile::simulation {

struct DividedMarks {
  std::uint64_t moved_while_held = 0,  ///< the log was divided while somebody had permits
      opened = 0, opened_twice = 0, expired = 0, fenced = 0, restored = 0, set_moved = 0, trimmed = 0;
};

/// The broken invariant. Absent: none was broken.
std::optional<std::string> run_divided(std::uint64_t seed, DividedMarks& marks, std::ostream* trace = nullptr);

struct DividedOutcome {
  std::uint64_t runs = 0;
  DividedMarks marks{};
  std::optional<std::uint64_t> seed;  ///< of a run that failed
  std::string why;
};
/// Runs seeds from `first`, until one fails or `count` are done.
DividedOutcome run_many_divided(std::uint64_t first, std::uint64_t count);

}  // namespace turnstile::simulation
