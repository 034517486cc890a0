// Consumer::status(): what the engine knows of its partitions, handlers and limiters.

#include <algorithm>
#include <map>

#include "engine/engine.hpp"
#include "engine/engine_shared.hpp"
#include "engine/holds.hpp"
#include "engine/setup.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using std::chrono::system_clock;

PartitionStatus::State state_of(const LaneState& lane) {
  switch (lane.phase) {
    case LaneState::Phase::claiming: return PartitionStatus::State::claiming;
    case LaneState::Phase::open: return PartitionStatus::State::running;
    case LaneState::Phase::draining: return PartitionStatus::State::draining;
    case LaneState::Phase::fenced:
    case LaneState::Phase::gone: return PartitionStatus::State::fenced;
  }
  return PartitionStatus::State::fenced;
}

PartitionStatus describe_lane(const LaneState& state, system_clock::time_point now) {
  const Lane& lane = state.lane;
  PartitionStatus status{.at = state.place.at, .state = state_of(state)};
  status.paused = state.paused;
  status.position = lane.position() ? lane.position() : state.start;
  status.in_flight = static_cast<std::int64_t>(lane.unsettled());
  status.running = static_cast<std::int64_t>(lane.running());
  status.retrying = static_cast<std::int64_t>(lane.delayed());
  if (const Message* oldest = lane.oldest(); oldest != nullptr && oldest->timestamp() != Timestamp{})
    status.behind = std::max(std::chrono::duration_cast<milliseconds>(now - oldest->timestamp()), milliseconds(0));
  return status;
}

void add_what_topics_share(const std::vector<std::unique_ptr<TopicState>>& topics, const ports::Limiters& all,
                           Status& status) {
  std::map<std::string, ports::LimiterState> limiters;
  for (const auto& topic : topics) {
    if (const auto& tracer = topic->runner.services().tracer; tracer && !status.spans) status.spans = tracer->counts();
    if (topic->limiter) limiters.try_emplace(topic->limiter->name(), topic->limiter->state());
    const auto& kept = topic->runner.services().retention;
    if (!kept) continue;
    std::optional<Timestamp> since;
    if (kept->all_since() != Timestamp::min()) since = kept->all_since();
    status.ids.push_back({kept->name(), kept->kept_for(), since});
  }
  for (const auto& [name, state] : limiters) status.limiters.push_back({name, state});
  status.token_log = all.log();
}

}  // namespace

/// On any thread.
void Engine::describe(Status& status) const {
  add_what_topics_share(shared_->topics, *limiters_, status);
  Health& health = status.health;
  const bool at_work = health.state == Health::State::running || health.state == Health::State::waiting;
  if (!at_work && health.state != Health::State::stopping) return;
  Scheduler& scheduler = shared_->scheduler;
  const Holds holds(scheduler, limiters_.get());
  const LimitersHealth limiters = limiters_->health();
  const auto now = steady_clock::now();
  const auto now_of_day = system_clock::now();
  const auto running = scheduler.running();
  scheduler.locked([&] {
    const auto& lanes = scheduler.lanes_unlocked();
    health.partitions = lanes.size();
    status.pauses = scheduler.pauses_unlocked().all;
    // A topic that continues without the database keeps the process at work.
    const bool all_wait = std::all_of(lanes.begin(), lanes.end(), [](const LanePtr& lane) {
      return lane->topic.needs_store() && !lane->topic.fails_open();
    });
    const auto& store = scheduler.store_trouble_unlocked();
    if (need_store(shared_->topics)) status.store_available = store.empty();
    if (at_work && !store.empty() && all_wait) health.reason = "the database cannot be used: " + store;
    else if (at_work && limiters.state != LimitersHealth::State::working) health.reason = limiters.why;
    for (const auto& topic : shared_->topics) {
      const HandlerBreaker* const breaker = topic->runner.breaker();
      if (breaker == nullptr) continue;
      const auto until = breaker->open_until();
      const auto left = std::chrono::duration_cast<milliseconds>(until.value_or(now) - now);
      status.breakers.push_back({topic->runner.plan().topic, until.has_value(), std::max(left, milliseconds(0))});
    }
    for (const LanePtr& lane : lanes) {
      status.partitions.push_back(describe_lane(*lane, now_of_day));
      if (!is_stuck(*lane, now, settings_.consumer.stall_after)) continue;
      Hold hold = holds.of(*lane, now);
      const auto lasted = std::chrono::duration_cast<system_clock::duration>(now - lane->moved_at);
      health.problems.push_back({lane->place.at, std::move(hold.why), hold.offset, now_of_day - lasted});
    }
  });
  for (const auto& [lanes, watch] : running) {
    const auto run = lanes.empty() ? std::nullopt : watch->look();
    if (!run) continue;
    const TopicPlan& plan = lanes.front()->topic.runner.plan();
    status.running.push_back({{plan.topic, run->partition},
                              run->offset,
                              plan.handler,
                              std::chrono::duration_cast<milliseconds>(now - run->since)});
  }
  if (status.token_log) status.threads.push_back({"token log", status.token_log->quiet, {}});
  reporter_->add_to(status);
}

}  // namespace turnstile::detail
