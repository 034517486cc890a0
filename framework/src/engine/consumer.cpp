#include "turnstile/consumer.hpp"

#include <algorithm>
#include <atomic>
#include <csignal>

#include "engine/end_bound.hpp"
#include "engine/engine.hpp"
#include "engine/setup.hpp"
#include "support/process_name.hpp"
#include "turnstile/admin_view.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

struct Consumer::State {
  detail::ConsumerSpec spec;
  std::shared_ptr<detail::StatusBoard> status = std::make_shared<detail::StatusBoard>();
  bool handle_signals = true;
  std::atomic<int> stop{0};
  std::shared_ptr<const detail::RunLog> run_log{};  ///< of the current run
};

namespace {

/// SIGTERM and SIGINT increment the stop flag of the running Consumer. There is only one in a process, because signals
/// are per process.
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
  state_->spec.config = std::move(config);
  state_->spec.backends = std::move(backends);
  for (const auto& observer : state_->spec.backends.observers) state_->spec.observers.add(observer);
  state_->spec.tracer = state_->spec.backends.tracer;
  if (!state_->spec.backends.limiters) state_->spec.backends.limiters = make_local_limiters();
  state_->status->name(detail::own_name(state_->spec.config.client()));
}

Consumer::~Consumer() = default;

Consumer& Consumer::topic(const std::string& name, Pipeline pipeline) {
  state_->spec.topics.emplace_back(name, std::move(pipeline));
  return *this;
}

Consumer& Consumer::observe(std::shared_ptr<Observer> observer) {
  state_->spec.observers.add(std::move(observer));
  return *this;
}

Consumer& Consumer::trace(std::shared_ptr<Tracer> tracer) {
  state_->spec.tracer = std::move(tracer);
  return *this;
}

Consumer& Consumer::logger(std::shared_ptr<spdlog::logger> logger) {
  detail::log_through(state_->spec, std::move(logger));
  return *this;
}

Consumer& Consumer::handle_signals(bool on) {
  state_->handle_signals = on;
  return *this;
}

void Consumer::stop() noexcept { state_->stop.fetch_add(1); }

Health Consumer::health() const { return state_->status->look().health; }

Status Consumer::status() const {
  state_->status->want_all();
  return state_->status->look();
}

std::vector<Finding> Consumer::check() const {
  Findings findings;
  detail::check_spec(state_->spec, findings);
  const Health now = health();
  if (now.state == Health::State::halted) findings.problem("this consumer", now.reason);
  else if (!now.reason.empty()) findings.warning("this consumer", now.reason);
  for (const auto& problem : now.problems) findings.problem("partition " + to_string(problem.at), problem.reason);
  return findings.all();
}

std::vector<ExplainedSetting> Consumer::explain(std::string_view key) const {
  return detail::explain_spec(state_->spec, key);
}

void Consumer::run() {
  state_->status->set(Health::State::starting);
  try {
    run_until_stopped();
  } catch (const std::exception& error) {
    // Later errors are logged by the engine, before it ends.
    if (state_->run_log && health().state == Health::State::starting)
      state_->run_log->error(code_of(error), std::string("the consumer does not start: ") + error.what());
    state_->status->set(Health::State::halted, error.what());
    state_->spec.observers.tell(&Observer::on_status, state_->status->look());
    throw;
  }
  if (health().state != Health::State::halted) state_->status->set(Health::State::stopped);
  state_->spec.observers.tell(&Observer::on_status, state_->status->look());
}

void Consumer::run_until_stopped() {
  const detail::ConsumerSpec& spec = state_->spec;
  if (!spec.backends.broker) throw ConfigError({"a Consumer needs a broker: Backends::broker is null"});
  const SignalWatch signals(state_->stop, state_->handle_signals);
  const detail::EndBound bound(spec.backends.store, state_->stop, spec.config.consumer.drain_timeout);
  const auto run_log = state_->run_log = detail::open_run_log(spec);
  const AdminView view{.status = [this] { return status(); }, .settings = [this] { return explain(); }};
  const auto admin = spec.backends.serve ? spec.backends.serve(view) : nullptr;
  const auto relay = detail::make_relay(spec, run_log);
  auto topics = detail::build_topics(spec, run_log, false, detail::bell_of(relay));
  detail::EngineSettings settings{.consumer = spec.config.consumer,
                                  .group = spec.config.group(),
                                  .workers = detail::worker_count(spec.config, topics),
                                  .status = state_->status};
  if (spec.config.postgres) settings.lock_timeout = spec.config.postgres->lock_timeout;
  detail::Engine engine(settings, *spec.backends.broker, spec.backends.store, spec.backends.limiters, run_log);
  const bool stores = detail::need_store(topics);
  for (auto& topic : topics) engine.add_topic(std::move(topic));
  if (stores) relay->start();
  engine.run(state_->stop);
  if (stores) relay->stop();
}

}  // namespace turnstile
