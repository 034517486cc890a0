#include "tests/simulation/workers.hpp"

#include <algorithm>

#include "tests/simulation/process.hpp"
#include "tests/simulation/world.hpp"

namespace turnstile::simulation {

using tokens::Count;

namespace {

/// A permit of the reserve belongs to no life of its pool.
bool is_of_reserve(const Permit& permit) { return permit.token() >> 40 == 0; }

}  // namespace

Workers::Workers(World& world, Process& process, LimiterUse use, bool service)
    : world_(world), process_(process), use_(std::move(use)), service_(service) {}

bool Workers::has_work() const { return process_.has_work(service_); }

Workers::~Workers() {
  ended_ = true;
  for (auto& [number, waiting] : std::exchange(waiting_, {})) {
    if (waiting.withdraw) waiting.withdraw();
  }
  handlers_.clear();
}

void Workers::want(int workers, std::int64_t longest_ms, int wide) {
  wanted_ = workers;
  longest_ms_ = longest_ms;
  wide_ = wide;
  if (workers > 0) lets_go_ = false;
  settle();
}

void Workers::settle() {
  const int wanted = has_work() ? wanted_ : 0;
  if (wanted > 0 && !limiter_ && world_.schedule.now() >= opens_again_) open();
  while (limiter_ && static_cast<int>(handlers_.size() + waiting_.size()) < wanted) ask();
  while (static_cast<int>(handlers_.size() + waiting_.size()) > wanted && !waiting_.empty()) {
    const auto last = std::prev(waiting_.end());
    const auto withdraw = std::move(last->second.withdraw);
    waiting_.erase(last);
    withdraw();
  }
  if (lets_go_ && handlers_.empty() && waiting_.empty() && limiter_) {
    limiter_.reset();
    world_.mark(Mark::let_go);
  }
}

void Workers::open() {
  try {
    limiter_ = process_.open(use_, service_);
  } catch (const Error&) {
    world_.mark(Mark::no_room_for_a_name);
    if (!world_.chaotic()) opens_again_ = world_.schedule.now() + kSecond / 10;
  }
}

bool Workers::is_served() const {
  return wanted_ > 0 && limiter_ && has_work() &&
         process_.state().holding(use_.name, process_.member().id()) != nullptr;
}

Count Workers::some_count() {
  Random& random = process_.random();
  // A part that a rollout or an operator sets aside now is not available.
  const auto known = world_.checks.state().limiters.find(use_.name);
  const Count most =
      std::min(use_.shared(), known == world_.checks.state().limiters.end() ? use_.shared() : known->second.shared());
  if (most < 2) return 1;
  if (random.chance(wide_))
    return wide_ == 100 ? most : static_cast<Count>(random.between(2, static_cast<std::int64_t>(most)));
  return world_.chaotic() && random.chance(3) ? 2 : 1;
}

void Workers::ask() {
  const std::uint64_t number = ++last_number_;
  const Count count = some_count();
  const bool urgent = world_.chaotic() && process_.random().chance(5);
  waiting_[number] = {.since = world_.schedule.now()};
  auto withdraw =
      limiter_->acquire_later(static_cast<std::int64_t>(count), urgent ? Priority::urgent : Priority::normal,
                              [this, number, count](Permit permit) {
                                waiting_.erase(number);
                                // It runs within the shipped code, which must not be left by an exception.
                                try {
                                  if (!ended_ && !world_.is_over()) begin(std::move(permit), count);
                                } catch (const Broken& broken) {
                                  world_.note(broken.what());
                                }
                              });
  if (const auto still = waiting_.find(number); still != waiting_.end()) still->second.withdraw = std::move(withdraw);
}

void Workers::begin(Permit permit, Count count) {
  const auto work = process_.next_work(service_);
  if (!work) return;  // its partitions were revoked while it waited
  const std::size_t life = process_.life();
  handlers_.push_back({.permit = std::move(permit),
                       .count = count,
                       .group = work->group,
                       .partition = work->partition,
                       .fence = work->fence,
                       .life = life,
                       .number = ++last_number_});
  Handler& handler = handlers_.back();
  handler.on_reserve = is_of_reserve(handler.permit);
  if (handler.on_reserve) {
    world_.mark(Mark::on_reserve);
    if (process_.local_now() >= process_.reserve_deadline())
      throw Broken(process_.name() + " started a handler on its reserve at or after the end of that");
  } else if (process_.local_now() >= process_.deadline(life)) {
    throw Broken(process_.name() + " started a handler at or after its own deadline");
  }
  if (!handler.on_reserve && process_.is_fenced_unknowingly(use_.name)) {
    handler.fenced = true;
    must_be_refused(handler);
  }
  process_.later(process_.random().between(longest_ms_ > 500 ? longest_ms_ / 3 : 1, longest_ms_) * kMillisecond,
                 [this, number = handler.number] { end(number); });
  world_.handler_started(use_.name);
}

void Workers::end(std::uint64_t number) {
  const auto found =
      std::find_if(handlers_.begin(), handlers_.end(), [&](const auto& h) { return h.number == number; });
  if (found == handlers_.end()) return;
  if (found->fenced) must_be_refused(*found);
  if (found->partition >= 0 && found->fence > 0 &&
      world_.databases.fence(process_.key_of({found->group, found->partition, found->fence})) > found->fence)
    world_.mark(Mark::commit_refused);
  if (!found->on_reserve && process_.local_now() > process_.deadline(found->life))
    world_.mark(Mark::handler_past_deadline);
  Handler handler = std::move(*found);
  handlers_.erase(found);
  ++finished_;
  handler.permit.give_back();
  settle();
}

void Workers::stop(Handler& handler) {
  if (std::exchange(handler.stopping, true)) return;
  process_.later(process_.random().between(1, 60) * kMillisecond, [this, number = handler.number] { end(number); });
}

void Workers::stop_lost() {
  for (Handler& handler : handlers_) {
    if (handler.permit.lost().stop_requested()) stop(handler);
  }
}

void Workers::stop_on(std::pair<int, int> place) {
  for (Handler& handler : handlers_) {
    if (std::pair(handler.group, handler.partition) == place) stop(handler);
  }
}

bool Workers::runs_on(std::pair<int, int> place) const {
  return std::any_of(handlers_.begin(), handlers_.end(),
                     [&](const auto& h) { return std::pair(h.group, h.partition) == place; });
}

/// The fenced policy depends on this: permits are reassigned at once, because the effects of these handlers will be
/// rejected.
void Workers::must_be_refused(const Handler& handler) const {
  if (handler.partition >= 0 &&
      world_.databases.fence(process_.key_of({handler.group, handler.partition, handler.fence})) > handler.fence) {
    world_.mark(Mark::handler_fenced);
    return;
  }
  throw Broken("permits of " + use_.name + " were taken from " + process_.name() +
               " by a fence, but a handler of it can still commit on partition " + std::to_string(handler.partition) +
               " of group " + std::to_string(handler.group));
}

void Workers::fenced(std::size_t life) {
  for (Handler& handler : handlers_) {
    if (handler.life != life || handler.fenced || handler.on_reserve) continue;
    handler.fenced = true;
    must_be_refused(handler);
  }
}

bool Workers::counts(const Handler& handler) const {
  return !handler.fenced && !handler.on_reserve && !process_.is_late(handler.life) &&
         process_.local_now() < process_.deadline(handler.life);
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

Count Workers::counted_on_reserve() const {
  if (process_.is_reserve_late() || process_.local_now() >= process_.reserve_deadline()) return 0;
  Count sum = 0;
  for (const Handler& handler : handlers_) {
    if (handler.on_reserve) sum += handler.count;
  }
  return sum;
}

Count Workers::in_use() const { return limiter_ ? static_cast<Count>(limiter_->state().in_use) : 0; }

Time Workers::waits_since() const {
  Time first = world_.schedule.now();
  for (const auto& [number, waiting] : waiting_) first = std::min(first, waiting.since);
  return first;
}

}  // namespace turnstile::simulation
