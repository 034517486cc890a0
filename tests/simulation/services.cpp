#include "simulation/services.hpp"

#include <algorithm>

#include "simulation/process.hpp"
#include "simulation/world.hpp"
#include "tokens/wire.hpp"

namespace turnstile::simulation {

using tokens::Event;

namespace {

constexpr Time kLook = 200 * kMillisecond;

}  // namespace

// --- the log -----------------------------------------------------------------------------------------------------------

void TokenLog::append(std::string bytes) {
  Event event = tokens::decode(bytes);
  records_.push_back({std::move(bytes), std::move(event)});
  world_.written(end() - 1);
}

void Writer::send(const Event& event) {
  Random random(process_.random().next());  // as many draws from the process's, whatever faults there are
  std::string bytes = tokens::encode(event);
  const bool broken = broken_member_ == event.member && broken_epoch_ == event.epoch;
  const auto write_late = [&] {
    world_.schedule.after(random.between(50, 3'000) * kMillisecond, [&log = world_.log, bytes] { log.append(bytes); });
  };
  if (broken) {
    if (world_.has(Fault::late_retries) && random.chance(50)) write_late();
    return;
  }
  if (world_.has(Fault::late_retries) && random.chance(2)) {
    write_late();
    return fail(event.epoch, random.between(20, 500) * kMillisecond);
  }
  if (world_.has(Fault::gaps) && random.chance(2)) {
    const tokens::MemberId member = event.member;
    const std::uint32_t epoch = event.epoch;
    return process_.later(random.between(20, 2'500) * kMillisecond,
                          [this, member, epoch] { process_.sending_failed(member, epoch); });
  }
  if (world_.has(Fault::lost_answers) && random.chance(2)) fail(event.epoch, random.between(20, 800) * kMillisecond);

  const Time slow = world_.has(Fault::slow_log) && random.chance(20) ? 500 * kMillisecond : 5 * kMillisecond;
  const Time start = std::max(world_.schedule.now(), process_.cut_until());
  last_arrival_ = std::max(last_arrival_, start + random.between(kMillisecond / 2, slow));
  world_.schedule.after(last_arrival_ - world_.schedule.now(), [this, bytes = std::move(bytes)] { deliver(bytes); });
}

/// A process that is paused may have handed over what it sent, or not.
void Writer::deliver(const std::string& bytes) {
  if (closed_) return;
  if (!process_.holds_back_what_it_sent() && held_back_.empty()) return world_.log.append(bytes);
  held_back_.push_back(bytes);
  if (held_back_.size() == 1) process_.later(0, [this] { let_go(); });
}

void Writer::let_go() {
  for (; !held_back_.empty() && !closed_; held_back_.pop_front()) world_.log.append(held_back_.front());
}

void Writer::fail(std::uint32_t epoch, Time report_after) {
  broken_member_ = process_.member().id();
  broken_epoch_ = epoch;
  process_.later(report_after, [this, member = broken_member_, epoch] { process_.sending_failed(member, epoch); });
}

// --- the group ---------------------------------------------------------------------------------------------------------

void Coordinator::look() {
  std::vector<Process*> there;
  for (const auto& process : world_.processes()) {
    if (process->answers_the_group()) there.push_back(process.get());
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
      process->later(random.between(1, most) * kMillisecond,
                     [process, generation = generation_, partitions] { process->assigned(generation, partitions); });
  }
}

}  // namespace turnstile::simulation
