#include "simulation/workers.hpp"

#include <algorithm>

#include "simulation/process.hpp"
#include "simulation/world.hpp"

namespace turnstile::simulation {

using tokens::Count;

Workers::Workers(World& world, Process& process, LimiterUse use)
    : world_(world),
      process_(process),
      use_(std::move(use)),
      gate_([&process] { return process.local_now(); }, [&process] { process.ring(); }) {}

void Workers::want(int workers, std::int64_t longest_ms) {
  wanted_ = workers;
  longest_ms_ = longest_ms;
  settle();
}

void Workers::settle() {
  const int wanted = process_.has_work() ? wanted_ : 0;
  while (static_cast<int>(handlers_.size() + waiting_.size()) < wanted) ask();
  while (static_cast<int>(handlers_.size() + waiting_.size()) > wanted && !waiting_.empty()) {
    gate_.withdraw(waiting_.rbegin()->second);
    waiting_.erase(std::prev(waiting_.end()));
  }
}

void Workers::ask() {
  const std::uint64_t number = ++last_number_;
  const bool pair = world_.chaotic() && use_.shared() >= 2 && process_.random().chance(3);
  const bool urgent = world_.chaotic() && process_.random().chance(5);
  const Count count = pair ? 2 : 1;
  waiting_[number] = 0;
  const std::uint64_t waiter = gate_.take_later(count, urgent, [this, number, count](PermitGate::Taken taken) {
    waiting_.erase(number);
    begin(std::move(taken), count);
  });
  if (const auto still = waiting_.find(number); still != waiting_.end()) still->second = waiter;
}

void Workers::begin(PermitGate::Taken taken, Count count) {
  const auto work = process_.next_work();
  if (!work) {  // its partitions went away while it waited
    gate_.give_back(taken.token, count);
    return;
  }
  handlers_.push_back({.taken = std::move(taken),
                       .count = count,
                       .partition = work->partition,
                       .fence = work->fence,
                       .life = process_.life(),
                       .number = ++last_number_});
  Handler& handler = handlers_.back();
  if (process_.local_now() >= process_.deadline(handler.life))
    throw Broken(process_.name() + " started a handler at or after its own deadline");
  if (process_.is_fenced_unknowingly(use_.name)) {
    handler.fenced = true;
    must_be_refused(handler);
  }
  process_.later(process_.random().between(1, longest_ms_) * kMillisecond,
                 [this, number = handler.number] { end(number); });
  world_.handler_started(use_.name);
}

void Workers::end(std::uint64_t number) {
  const auto found =
      std::find_if(handlers_.begin(), handlers_.end(), [&](const auto& h) { return h.number == number; });
  if (found == handlers_.end()) return;
  if (found->fenced) must_be_refused(*found);
  if (found->partition >= 0 && found->fence > 0 && world_.database.fence(found->partition) > found->fence)
    world_.mark(Mark::commit_refused);
  if (process_.local_now() > process_.deadline(found->life)) world_.mark(Mark::handler_past_deadline);
  const Handler handler = std::move(*found);
  handlers_.erase(found);
  ++finished_;
  gate_.give_back(handler.taken.token, handler.count);
  settle();
}

void Workers::stop(Handler& handler) {
  if (std::exchange(handler.stopping, true)) return;
  process_.later(process_.random().between(1, 60) * kMillisecond, [this, number = handler.number] { end(number); });
}

void Workers::stop_lost() {
  for (Handler& handler : handlers_) {
    if (handler.taken.lost.stop_requested()) stop(handler);
  }
}

void Workers::stop_on(int partition) {
  for (Handler& handler : handlers_) {
    if (handler.partition == partition) stop(handler);
  }
}

bool Workers::runs_on(int partition) const {
  return std::any_of(handlers_.begin(), handlers_.end(), [&](const auto& h) { return h.partition == partition; });
}

/// What the fenced policy rests on: permits go to others at once, because the effects of these handlers will be refused.
void Workers::must_be_refused(const Handler& handler) const {
  if (handler.partition >= 0 && world_.database.fence(handler.partition) > handler.fence) {
    world_.mark(Mark::handler_fenced);
    return;
  }
  throw Broken("permits of " + use_.name + " were taken from " + process_.name() +
               " by a fence, but a handler of it can still commit on partition " + std::to_string(handler.partition));
}

void Workers::fenced(std::size_t life) {
  for (Handler& handler : handlers_) {
    if (handler.life != life || handler.fenced) continue;
    handler.fenced = true;
    must_be_refused(handler);
  }
}

bool Workers::counts(const Handler& handler) const {
  return !handler.fenced && process_.local_now() < process_.deadline(handler.life);
}

Count Workers::counted(std::size_t life) const {
  Count sum = 0;
  for (const Handler& handler : handlers_) {
    if (handler.life == life && counts(handler)) sum += handler.count;
  }
  return sum;
}

Count Workers::counted() const {
  Count sum = 0;
  for (const Handler& handler : handlers_) {
    if (counts(handler)) sum += handler.count;
  }
  return sum;
}

}  // namespace turnstile::simulation
