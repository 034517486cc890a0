#include "turnstile/consumer.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

#include "engine/end_bound.hpp"
#include "engine/engine.hpp"
#include "engine/setup.hpp"
#include "support/process_name.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

struct Consumer::State {
  Blueprint blueprint;
  std::shared_ptr<HealthBoard> health = std::make_shared<HealthBoard>();
  bool handle_signals = true;
  std::atomic<int> stop{0};
};

namespace {

/// SIGTERM and SIGINT count up the stop flag of the Consumer that runs; one of a process, as signals are.
class SignalWatch {
 public:
  SignalWatch(std::atomic<int>& stop, bool on) {
    if (!on || target_.load() != nullptr) return;
    target_ = &stop;
    active_ = true;
    struct sigaction action {};
    action.sa_handler = [](int) {
      if (auto* flag = target_.load()) flag->fetch_add(1);
    };
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    sigaction(SIGTERM, &action, &old_term_);
    sigaction(SIGINT, &action, &old_int_);
  }
  ~SignalWatch() {
    if (!active_) return;
    sigaction(SIGTERM, &old_term_, nullptr);
    sigaction(SIGINT, &old_int_, nullptr);
    target_ = nullptr;
  }
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

 private:
  static inline std::atomic<std::atomic<int>*> target_{nullptr};
  static_assert(std::atomic<std::atomic<int>*>::is_always_lock_free);
  bool active_ = false;
  struct sigaction old_term_ {};
  struct sigaction old_int_ {};
};

}  // namespace

Consumer::Consumer(Config config, Backends backends) : state_(std::make_unique<State>()) {
  state_->blueprint.config = std::move(config);
  state_->blueprint.backends = std::move(backends);
  if (!state_->blueprint.backends.limiters) state_->blueprint.backends.limiters = make_local_limiters();
  state_->health->name(own_name(state_->blueprint.config.client()));
}

Consumer::~Consumer() = default;

Consumer& Consumer::topic(const std::string& name, Pipeline pipeline) {
  state_->blueprint.topics.emplace_back(name, std::move(pipeline));
  return *this;
}

Consumer& Consumer::observe(std::shared_ptr<Observer> observer) {
  state_->blueprint.observers.add(std::move(observer));
  return *this;
}

Consumer& Consumer::logger(std::shared_ptr<spdlog::logger> logger) {
  log_through(state_->blueprint, std::move(logger));
  return *this;
}

Consumer& Consumer::handle_signals(bool on) {
  state_->handle_signals = on;
  return *this;
}

void Consumer::stop() noexcept { state_->stop.fetch_add(1); }

Health Consumer::health() const { return state_->health->look(); }

std::vector<Finding> Consumer::check() const {
  Findings findings;
  check_blueprint(state_->blueprint, findings);
  const Health now = health();
  if (now.state == Health::State::halted) findings.problem("this consumer", now.reason);
  else if (!now.reason.empty()) findings.warning("this consumer", now.reason);
  for (const auto& problem : now.problems) findings.problem("partition " + to_string(problem.at), problem.reason);
  return findings.all();
}

void Consumer::run() {
  state_->health->set(Health::State::starting);
  try {
    run_until_stopped();
  } catch (const std::exception& error) {
    state_->health->set(Health::State::halted, error.what());
    throw;
  }
  if (state_->health->look().state != Health::State::halted) state_->health->set(Health::State::stopped);
}

void Consumer::run_until_stopped() {
  const Blueprint& blueprint = state_->blueprint;
  if (!blueprint.backends.broker) throw ConfigError({"a Consumer needs a broker: Backends::broker is null"});
  const SignalWatch signals(state_->stop, state_->handle_signals);
  const EndBound bound(blueprint.backends.store, state_->stop, blueprint.config.consumer.drain_timeout);
  const auto journal = open_journal(blueprint);
  const auto relay = make_relay(blueprint, journal);
  auto topics = build_topics(blueprint, journal, false, [relay] { relay->ring(); });
  EngineSettings settings{.consumer = blueprint.config.consumer,
                          .group = blueprint.config.group(),
                          .workers = worker_count(blueprint.config, topics),
                          .health = state_->health};
  if (blueprint.config.postgres) settings.lock_timeout = blueprint.config.postgres->lock_timeout;
  Engine engine(settings, *blueprint.backends.broker, blueprint.backends.store, blueprint.backends.limiters, journal);
  const bool stores = need_store(topics);
  for (auto& topic : topics) engine.add_topic(std::move(topic));
  if (stores) relay->start();
  engine.run(state_->stop);
  if (stores) relay->stop();
}

}  // namespace turnstile
