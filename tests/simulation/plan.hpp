#pragma once
// What one run is made of: everything follows from its seed. A plan can be made smaller, to see which part of it matters.

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tests/simulation/schedule.hpp"

namespace turnstile::simulation {

/// What may go wrong while chaos lasts.
enum class Fault : std::uint8_t {
  slow_log,          ///< records arrive, and are read, up to half a second late
  lost_answers,      ///< written, but reported as failed
  late_retries,      ///< reported as failed, and written later, when nobody expects it
  gaps,              ///< one record of an epoch is lost, those after it are not, and the report comes late
  copies,            ///< old records are written once more
  garbage,           ///< bytes that are no event
  forgery,           ///< events by strangers, and by strangers in the name of members
  cuts,              ///< a process cannot reach the log
  pauses,            ///< a process stops, also for longer than its lease, and wakes
  crashes,           ///< a process dies at once; another starts in its place, from a snapshot
  deaths,            ///< the same, and none starts
  departures,        ///< a process ends as it should
  drift,             ///< clocks run up to 5 % fast or slow
  late_rebalance,    ///< a process hears of its partitions up to two seconds late
  odd_rebalance,     ///< twice, or a partition goes to nobody for a while
  limit_changes,     ///< operators set limits, also below what is in use
  late_readers,      ///< a process reads what was written up to two seconds late
  snapshots_unread,  ///< a snapshot cannot be read now, or is not kept
  unused_names,      ///< a process lets go of limiters that it does not use for a while
  stopped_clocks,    ///< a pause stops the process's clock too, as a hypervisor does
  unread_records,    ///< a record cannot be read for a while: it is damaged on its way, and read again
  version_skew,      ///< some know a newer version of the log, some do not
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
  /// The host starts handlers on a partition before it has read its own claim of it. Only to show that it must not.
  bool hasty_host = false;

  [[nodiscard]] bool has(Fault fault) const { return faults.test(static_cast<std::size_t>(fault)); }
};

/// Each seed leaves out some of the faults, since many rare things show only where others do not cover them.
Plan plan_for(std::uint64_t seed);
/// What to type to see this run again.
std::string command_for(const Plan& plan);

}  // namespace turnstile::simulation
