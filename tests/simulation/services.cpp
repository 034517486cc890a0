#include "tests/simulation/services.hpp"

#include <algorithm>

#include "tests/simulation/process.hpp"
#include "tests/simulation/world.hpp"
#include "tokens/wire.hpp"

namespace turnstile::simulation {

using tokens::Event;

namespace {

constexpr Time kLook = 200 * kMillisecond;

}  // namespace

// --- the log ---------------------------------------------------------------------------------------------------------

void SharedLog::append(std::string bytes) {
  Event event = tokens::decode(bytes);
  records_.push_back({std::move(bytes), std::move(event)});
  world_.written(end() - 1);
}

void SharedLog::trim(tokens::Position below) {
  if (below <= begin_) return;
  begin_ = std::min(below, end());
  world_.mark(Mark::trimmed);
  world_.say([&] { return "the log begins at " + std::to_string(begin_); });
}

void ProcessLog::must_be_reached() const {
  if (world_.schedule.now() < process_.cut_until())
    throw BrokerError(Code::kafka_unavailable, "the token log cannot be reached");
  if (world_.has(Fault::snapshots_unread) && process_.random().chance(30)) {
    world_.mark(Mark::snapshot_unread);
    throw BrokerError(Code::kafka_unavailable, "the token log did not answer in time");
  }
}

std::optional<ports::TokenLog::Snapshot> ProcessLog::snapshot(std::int64_t before) {
  must_be_reached();
  const auto number = std::min(before, static_cast<std::int64_t>(world_.log.snapshots.size())) - 1;
  if (number < 0) return std::nullopt;
  return Snapshot{.number = number, .bytes = world_.log.snapshots[static_cast<std::size_t>(number)]};
}

std::int64_t ProcessLog::begin() {
  must_be_reached();
  return world_.log.begin();
}

std::int64_t ProcessLog::end() { return world_.log.end(); }

std::vector<ports::TokenLog::Record> ProcessLog::read(std::chrono::milliseconds) {
  std::vector<Record> records;
  if (world_.schedule.now() < std::max(process_.cut_until(), unread_until_)) return records;
  if (next_ < world_.log.end() && world_.has(Fault::unread_records) && process_.random().chance(1)) {
    unread_until_ = world_.schedule.now() + process_.random().between(100, 3'000) * kMillisecond;
    world_.mark(Mark::record_unread);
    return records;
  }
  if (next_ < world_.log.begin()) {
    world_.mark(Mark::read_too_late);
    throw TokenLogTrimmed("positions " + std::to_string(next_) + " to " + std::to_string(world_.log.begin() - 1) +
                          " are missing");
  }
  // It reads no further than the next position for which the judge has a digest, because states are compared there.
  for (bool more = true; more && next_ < world_.log.end(); ++next_) {
    records.push_back({.position = next_, .bytes = world_.log.at(next_).bytes});
    more = !Checks::is_compared(next_);
  }
  if (next_ < world_.log.end()) process_.read_on();
  return records;
}

void ProcessLog::append(std::string bytes) {
  Random random(process_.random().next());  // the number of draws from the process's stream is the same for all faults
  const auto write_late = [&] {
    world_.schedule.after(random.between(50, 3'000) * kMillisecond, [&log = world_.log, bytes] { log.append(bytes); });
  };
  if (broken_) {
    if (world_.has(Fault::late_retries) && random.chance(50)) write_late();
    return;
  }
  if (world_.has(Fault::late_retries) && random.chance(2)) {
    write_late();
    return fail(random.between(20, 500) * kMillisecond);
  }
  if (world_.has(Fault::gaps) && random.chance(2)) return report_later(random.between(20, 2'500) * kMillisecond);
  if (world_.has(Fault::lost_answers) && random.chance(2)) fail(random.between(20, 800) * kMillisecond);

  const Time slow = world_.has(Fault::slow_log) && random.chance(20) ? 500 * kMillisecond : 5 * kMillisecond;
  const Time start = std::max(world_.schedule.now(), process_.cut_until());
  last_arrival_ = std::max(last_arrival_, start + random.between(kMillisecond / 2, slow));
  world_.schedule.after(last_arrival_ - world_.schedule.now(), [this, bytes = std::move(bytes)] { deliver(bytes); });
}

/// A paused process may or may not have handed over its sent records.
void ProcessLog::deliver(const std::string& bytes) {
  if (closed_) return;
  if (!process_.holds_back_what_it_sent() && held_back_.empty()) return world_.log.append(bytes);
  held_back_.push_back(bytes);
  if (held_back_.size() == 1) process_.later(0, [this] { let_go(); });
}

void ProcessLog::let_go() {
  for (; !held_back_.empty() && !closed_; held_back_.pop_front()) world_.log.append(held_back_.front());
}

void ProcessLog::fail(Time report_after) {
  broken_ = true;
  report_later(report_after);
}

void ProcessLog::report_later(Time after) {
  process_.later(after, [this, producer = producer_] {
    if (producer != producer_) return;
    failed_ = true;
    process_.ring();
  });
}

bool ProcessLog::failed() {
  if (!std::exchange(failed_, false)) return false;
  ++producer_;
  broken_ = false;
  return true;
}

/// Stored a moment later, or never.
void ProcessLog::save(std::int64_t position, std::string snapshot) {
  if (world_.has(Fault::snapshots_unread) && process_.random().chance(30)) return;
  process_.later(process_.random().between(1, 50) * kMillisecond,
                 [this, position, snapshot = std::move(snapshot)]() mutable {
                   if (world_.schedule.now() < process_.cut_until()) return;
                   world_.log.snapshots.push_back(std::move(snapshot));
                   saved_ = std::max(saved_, position);
                   process_.ring();
                 });
}

void ProcessLog::trim(std::int64_t below) {
  process_.later(process_.random().between(1, 100) * kMillisecond, [this, below] {
    if (world_.schedule.now() >= process_.cut_until()) world_.log.trim(below);
  });
}

void ProcessLog::wake() noexcept { process_.ring(); }

// --- the groups ------------------------------------------------------------------------------------------------------

void Coordinator::look() {
  std::vector<Process*> there;
  for (const auto& process : world_.processes()) {
    if (process->answers_the_group(group_)) there.push_back(process.get());
  }
  if (there != members_ || (incomplete_ && random_.chance(20)) || (incomplete_ && !world_.chaotic())) {
    members_ = std::move(there);
    rebalance();
  }
  world_.schedule.after(kLook, [this] { look(); });
}

void Coordinator::rebalance() {
  if (members_.empty()) return;
  Random random(random_.next());
  const bool odd = world_.has(Fault::odd_rebalance);
  ++generation_;
  incomplete_ = false;
  std::map<Process*, std::vector<int>> assignment;
  for (Process* process : members_) assignment[process] = {};
  const std::size_t shift = random.index(members_.size());
  for (int partition = 0; partition < partitions_; ++partition) {
    if (odd && random.chance(15)) {
      incomplete_ = true;
      continue;
    }
    assignment[members_[(static_cast<std::size_t>(partition) + shift) % members_.size()]].push_back(partition);
  }
  for (Process* process : members_) {
    const auto& partitions = assignment[process];
    const Time most = world_.has(Fault::late_rebalance) && random.chance(40) ? 2'000 : 50;
    for (int times = odd && random.chance(30) ? 2 : 1; times > 0; --times)
      process->later(random.between(1, most) * kMillisecond, [this, process, generation = generation_, partitions] {
        process->assigned(group_, generation, partitions);
      });
  }
}

}  // namespace turnstile::simulation
