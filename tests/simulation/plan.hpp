#pragma once
// The plan of a run. Everything follows from its seed. A plan can be made smaller, to find the part that matters.

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tests/simulation/schedule.hpp"

namespace turnstile::simulation {

/// The faults that can happen while chaos lasts.
enum class Fault : std::uint8_t {
  slow_log,          ///< records are written and read up to half a second late
  lost_answers,      ///< written, but reported as failed
  late_retries,      ///< reported as failed, and written at a later time
  gaps,              ///< a record of an epoch is lost, later ones are written, and the report comes late
  copies,            ///< old records are written again
  garbage,           ///< bytes that are no event
  forgery,           ///< events of strangers, also in the name of members
  cuts,              ///< a process cannot reach the log
  pauses,            ///< a process stops, also for longer than its lease, and wakes up
  crashes,           ///< a process dies at once, and another one starts from a snapshot
  deaths,            ///< a process dies at once, and no other one starts
  departures,        ///< a process ends in order
  drift,             ///< clocks run up to 5 % fast or slow
  late_rebalance,    ///< a process learns its partitions up to two seconds late
  odd_rebalance,     ///< an assignment comes twice, or a partition has no owner for a while
  limit_changes,     ///< operators set limits, also below the permits in use
  late_readers,      ///< a process reads records up to two seconds late
  snapshots_unread,  ///< a snapshot cannot be read now, or is not stored
  unused_names,      ///< a process drops limiters that it does not use for a while
  stopped_clocks,    ///< a pause stops the process's clock too, as a hypervisor does
  unread_records,    ///< a record cannot be read for a while: it was damaged in transit, and is read again
  version_skew,      ///< some members know a newer version of the log, some do not
};
inline constexpr std::size_t kFaults = 22;
inline constexpr std::array<std::string_view, kFaults> kFaultNames{
    "slow_log",     "lost_answers",   "late_retries",   "gaps",          "copies",       "garbage",
    "forgery",      "cuts",           "pauses",         "crashes",       "deaths",       "departures",
    "drift",        "late_rebalance", "odd_rebalance",  "limit_changes", "late_readers", "snapshots_unread",
    "unused_names", "stopped_clocks", "unread_records", "version_skew"};

struct Plan {
  std::uint64_t seed = 0;
  std::bitset<kFaults> faults;
  Time chaos = 0;
  /// The host starts handlers on a partition before it has read its own claim. Only to show that it must not.
  bool hasty_host = false;

  [[nodiscard]] bool has(Fault fault) const { return faults.test(static_cast<std::size_t>(fault)); }
};

/// Each seed leaves out some of the faults, because many rare problems appear only if other faults do not hide them.
Plan plan_for(std::uint64_t seed);
/// The command that repeats this run.
std::string command_for(const Plan& plan);

}  // namespace turnstile::simulation
