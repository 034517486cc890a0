#include "turnstile/token_service.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <shared_mutex>
#include <unordered_map>
#include <unordered_set>

#include "permits/permit_seat.hpp"
#include "support/deadline.hpp"
#include "support/periodic_thread.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Time = steady_clock::time_point;

/// Tokens are divided into this number of tables. Each has its own lock, so that threads seldom wait for each other.
constexpr std::size_t kShards = 16;
/// How many taken-back tokens each table remembers.
constexpr std::size_t kExpiredKept = 4'000;

class Periodic final : public ExpiryStrategy {
 public:
  explicit Periodic(const PeriodicExpiry& settings) : settings_(settings) {}
  void start(Run run) override {
    run_ = std::move(run);
    thread_.start(PeriodicThread::after(settings_.every));
  }
  void stop() override { thread_.stop(); }

 private:
  const PeriodicExpiry settings_;
  Run run_;
  PeriodicThread thread_{[this] {
    run_(settings_.most_a_run, settings_.longest_run);
    return PeriodicThread::after(settings_.every);
  }};
};

/// The `lost` of a token with a hold_timeout. It is set when the hold time is over, and when the permit is lost. The
/// permit's own stop_token cannot be used, because all permits that are lost together share it.
class Loss {
 public:
  /// Does not wait for running callbacks of `lost`: their thread may wait for the thread that releases the token.
  struct LetGo {
    void operator()(Loss* loss) const {
      if (loss->stage_.exchange(Stage::let_go) != Stage::telling) delete loss;
    }
  };
  using Ptr = std::unique_ptr<Loss, LetGo>;

  static Ptr of(const std::stop_token& permit) { return Ptr(new Loss(permit)); }
  /// Set it without a lock: it runs the callbacks of `lost`.
  [[nodiscard]] const std::stop_source& source() const { return source_; }

 private:
  enum class Stage : std::uint8_t {
    waiting,
    telling,  ///< the permit is lost; callbacks may run
    told,
    let_go,
  };
  struct Tell {
    Loss* loss;
    void operator()() const noexcept { loss->tell(); }
  };

  explicit Loss(const std::stop_token& permit) : permit_lost_(permit, Tell{this}) {}

  void tell() {
    Stage was = Stage::waiting;
    if (!stage_.compare_exchange_strong(was, Stage::telling)) return;
    source_.request_stop();
    was = Stage::telling;
    // A stop_callback may destroy itself. On any other thread its destructor waits for it.
    if (!stage_.compare_exchange_strong(was, Stage::told)) delete this;
  }

  std::stop_source source_;
  std::atomic<Stage> stage_{Stage::waiting};
  const std::stop_callback<Tell> permit_lost_;  ///< last, because its constructor may call tell() at once
};

struct Held {
  Permit permit;
  const Limiter* limiter = nullptr;  ///< one of State::names, which is never erased
  Time since{}, due{};
  bool overdue = false;  ///< its hold_timeout has passed
  Loss::Ptr loss{};      ///< only with a hold_timeout; otherwise the permit's own `lost` is used
  [[nodiscard]] bool lost() const {
    return permit.lost().stop_requested() || (loss && loss->source().stop_requested());
  }
};

struct Shard {
  mutable std::mutex mutex;
  std::unordered_map<std::uint64_t, Held> held;
  std::set<std::pair<Time, std::uint64_t>> due;  ///< only with a hold_timeout
  std::unordered_set<std::uint64_t> expired;     ///< taken back
  std::deque<std::uint64_t> expired_in_order;

  void note_expired(std::uint64_t number) {
    expired.insert(number);
    expired_in_order.push_back(number);
    if (expired_in_order.size() <= kExpiredKept) return;
    expired.erase(expired_in_order.front());
    expired_in_order.pop_front();
  }
};

std::uint64_t random_id() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace

struct TokenService::State : std::enable_shared_from_this<State> {
  std::shared_ptr<Limiters> limiters;
  TokenServiceSettings settings;
  std::unique_ptr<ExpiryStrategy> expiry;
  const std::uint64_t id = random_id();

  mutable std::shared_mutex names_mutex;
  std::map<std::string, std::shared_ptr<Limiter>, std::less<>> names;

  std::array<Shard, kShards> shards;
  std::atomic<std::uint64_t> last_number{0};

  std::mutex seats_mutex;
  std::condition_variable seat_left;
  std::set<std::shared_ptr<PermitSeat>> seats;
  bool stopping = false;

  std::atomic<std::uint64_t> granted{0}, refused{0}, timed_out{0}, held_too_long{0}, taken_back{0};

  Shard& shard(std::uint64_t number) { return shards[number % kShards]; }
  std::shared_ptr<Limiter> find(std::string_view name) const {
    const std::shared_lock lock(names_mutex);
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
  }
  std::optional<Refused> cannot(std::string_view name, const Limiter* limiter, std::int64_t count) const;
  /// `kept` keeps the state alive: the service may be destroyed while the caller waits.
  std::variant<Permit, Refused, TimedOut> take(std::string_view name, std::int64_t count, Priority priority,
                                               milliseconds timeout, const std::stop_token& stop,
                                               std::shared_ptr<State>& kept);
  std::variant<Permit, Refused, TimedOut> wait(Limiter& limiter, std::int64_t count, Priority priority,
                                               milliseconds timeout, const std::stop_token& stop);
  /// The result for a token that is not held.
  template <class Answer>
  Answer about_absent(const Shard& of, std::uint64_t number) const {
    if (of.expired.contains(number)) return Answer::expired;
    return number > 0 && number <= last_number ? Answer::already : Answer::unknown;
  }
  Granted enter(Permit permit, const Limiter* limiter);
  std::size_t expire(std::size_t most, std::chrono::microseconds longest);
  bool take_back(Held& held, Time now);
};

// --- requests --------------------------------------------------------------------------------------------------------

/// Why the request can never be granted.
std::optional<Refused> TokenService::State::cannot(std::string_view name, const Limiter* limiter,
                                                   std::int64_t count) const {
  const auto refuse = [](Refused::Why why, std::string text) { return Refused{why, std::move(text)}; };
  if (limiter == nullptr) {
    return refuse(Refused::Why::unknown_limiter,
                  "limiter '" + std::string(name) + "' is not known here: call limit(name, number) first");
  }
  if (count == 1) return std::nullopt;
  const auto limit = limiter->state().limit;
  if (count < 1 || (limit > 0 && count > limit)) {
    return refuse(Refused::Why::bad_count, "limiter '" + std::string(name) + "' has a limit of " +
                                               std::to_string(limit) + ": " + std::to_string(count) +
                                               " at once can never be had");
  }
  if (!limiter->gives_several()) {
    return refuse(Refused::Why::bad_count,
                  "limiter '" + std::string(name) + "' gives one at a time, not " + std::to_string(count));
  }
  return std::nullopt;
}

std::variant<Permit, Refused, TimedOut> TokenService::State::take(std::string_view name, std::int64_t count,
                                                                  Priority priority, milliseconds timeout,
                                                                  const std::stop_token& stop,
                                                                  std::shared_ptr<State>& kept) {
  const auto limiter = find(name);
  if (auto refusal = cannot(name, limiter.get(), count)) return *refusal;
  if (Permit permit = limiter->try_acquire_fairly(count)) return permit;
  if (auto why = PermitSeat::why_halted(*limiters); !why.empty())
    return Refused{Refused::Why::no_more_starts, std::move(why)};
  if (timeout <= milliseconds(0)) {
    limiter->refused(count);
    return TimedOut{};
  }
  kept = shared_from_this();
  return wait(*limiter, count, priority, timeout, stop);
}

std::variant<Permit, Refused, TimedOut> TokenService::State::wait(Limiter& limiter, std::int64_t count,
                                                                  Priority priority, milliseconds timeout,
                                                                  const std::stop_token& stop) {
  const auto seat = std::make_shared<PermitSeat>();
  {
    const std::lock_guard lock(seats_mutex);
    if (stopping) return Refused{Refused::Why::stopped, "the token service ends"};
    if (seats.size() >= settings.most_waiting) {
      return Refused{Refused::Why::queue_full,
                     "limiter '" + limiter.name() + "': " + std::to_string(seats.size()) + " requests wait already"};
    }
    seats.insert(seat);
  }
  PermitSeat::Waited waited;
  {
    const std::stop_callback on_stop(stop, [seat] { seat->leave(); });
    waited = seat->wait(limiter, *limiters, count, priority, deadline_after(timeout));
  }
  bool over = false;
  {
    const std::lock_guard guard(seats_mutex);
    over = stopping;
    seats.erase(seat);
    seat_left.notify_all();  // under the lock: the service may be destroyed as soon as the lock is released
  }
  if (waited.permit) return std::move(waited.permit);
  if (over) return Refused{Refused::Why::stopped, "the token service ends"};
  if (stop.stop_requested()) return Refused{Refused::Why::cancelled, "the caller's stop_token was set"};
  if (!waited.why_halted.empty()) return Refused{Refused::Why::no_more_starts, std::move(waited.why_halted)};
  return TimedOut{};
}

Granted TokenService::State::enter(Permit permit, const Limiter* limiter) {
  const std::uint64_t number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  Granted answer{.token = {id, number}, .lost = permit.lost()};
  Held held{.permit = std::move(permit), .limiter = limiter, .since = steady_clock::now(), .due = {}, .overdue = false};
  Shard& into = shard(number);
  if (settings.hold_timeout.count() > 0) {
    held.due = held.since + settings.hold_timeout;
    held.loss = Loss::of(held.permit.lost());
    answer.lost = held.loss->source().get_token();
  }
  const std::lock_guard lock(into.mutex);
  if (settings.hold_timeout.count() > 0) into.due.insert({held.due, number});
  into.held.emplace(number, std::move(held));
  return answer;
}

TokenAnswer TokenService::request(std::string_view limiter, std::int64_t count, Priority priority, milliseconds timeout,
                                  std::stop_token stop) {
  State& s = *state_;
  std::shared_ptr<State> kept;
  auto taken = s.take(limiter, count, priority, timeout, stop, kept);
  if (auto* permit = std::get_if<Permit>(&taken)) {
    s.granted.fetch_add(1, std::memory_order_relaxed);
    return s.enter(std::move(*permit), s.find(limiter).get());
  }
  if (auto* refused = std::get_if<Refused>(&taken)) {
    s.refused.fetch_add(1, std::memory_order_relaxed);
    return std::move(*refused);
  }
  s.timed_out.fetch_add(1, std::memory_order_relaxed);
  return TimedOut{};
}

Permit TokenService::acquire(std::string_view limiter, milliseconds timeout, std::stop_token stop) {
  std::shared_ptr<State> kept;
  auto taken = state_->take(limiter, 1, Priority::normal, timeout, stop, kept);
  auto* permit = std::get_if<Permit>(&taken);
  return permit != nullptr ? std::move(*permit) : Permit();
}

// --- release ---------------------------------------------------------------------------------------------------------

ReleaseAnswer TokenService::release(const TokenId& token) {
  State& s = *state_;
  if (token.service != s.id) return ReleaseAnswer::foreign;
  Shard& shard = s.shard(token.number);
  std::unique_lock lock(shard.mutex);
  const auto found = shard.held.find(token.number);
  if (found == shard.held.end()) return s.about_absent<ReleaseAnswer>(shard, token.number);
  Held held = std::move(found->second);
  shard.held.erase(found);
  if (held.loss) shard.due.erase({held.due, token.number});
  lock.unlock();
  const bool lost = held.permit.lost().stop_requested();
  held.permit.give_back();  // without the lock: it may wake others
  return lost ? ReleaseAnswer::too_late : ReleaseAnswer::released;
}

KeepAnswer TokenService::keep(const TokenId& token) {
  State& s = *state_;
  if (token.service != s.id) return KeepAnswer::foreign;
  Shard& shard = s.shard(token.number);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.held.find(token.number);
  if (found == shard.held.end()) return s.about_absent<KeepAnswer>(shard, token.number);
  Held& held = found->second;
  if (held.lost()) return KeepAnswer::lost;
  if (!held.loss) return KeepAnswer::kept;
  shard.due.erase({held.due, token.number});
  held.due = steady_clock::now() + s.settings.hold_timeout;
  held.overdue = false;
  shard.due.insert({held.due, token.number});
  return KeepAnswer::kept;
}

/// Whether to take the permit back now. If not, sets when to check again.
bool TokenService::State::take_back(Held& held, Time now) {
  if (held.overdue) return true;
  held.overdue = true;
  held.due = std::max(held.since, held.due - settings.hold_timeout) + settings.hold_timeout * settings.hard_bound;
  held_too_long.fetch_add(1, std::memory_order_relaxed);
  return settings.on_hold == OnHold::release || held.due <= now;
}

std::size_t TokenService::State::expire(std::size_t most, std::chrono::microseconds longest) {
  const Time began = steady_clock::now();
  std::size_t handled = 0, left = 0;
  for (Shard& shard : shards) {
    for (bool more = true; more;) {
      Held taken;
      std::stop_source cancel{std::nostopstate};
      {
        const std::lock_guard lock(shard.mutex);
        const Time now = steady_clock::now();
        const auto first = shard.due.begin();
        if (first == shard.due.end() || first->first > now) break;
        if (handled >= most || now - began > longest) {
          left += static_cast<std::size_t>(
              std::distance(first, shard.due.upper_bound({now, std::numeric_limits<std::uint64_t>::max()})));
          break;
        }
        ++handled;
        const std::uint64_t number = first->second;
        Held& held = shard.held.at(number);
        shard.due.erase(first);
        if (take_back(held, now)) {
          taken = std::move(held);
          shard.held.erase(number);
          shard.note_expired(number);
          cancel = taken.loss->source();
        } else {
          shard.due.insert({held.due, number});
          if (settings.on_hold == OnHold::cancel) cancel = held.loss->source();
        }
      }
      cancel.request_stop();  // without the lock: it may run callbacks
      if (!taken.permit) continue;
      taken.permit.give_back();
      taken_back.fetch_add(1, std::memory_order_relaxed);
    }
  }
  return left;
}

// --- the rest --------------------------------------------------------------------------------------------------------

std::unique_ptr<ExpiryStrategy> make_expiry(const PeriodicExpiry& settings) {
  return std::make_unique<Periodic>(settings);
}

TokenService::TokenService(std::shared_ptr<Limiters> limiters, TokenServiceSettings settings,
                           std::unique_ptr<ExpiryStrategy> expiry)
    : state_(std::make_shared<State>()) {
  state_->limiters = std::move(limiters);
  state_->settings = settings;
  if (settings.hold_timeout.count() <= 0) return;
  state_->expiry = expiry ? std::move(expiry) : make_expiry(settings.expiry);
  state_->expiry->start([state = state_.get()](std::size_t most, std::chrono::microseconds longest) {
    return state->expire(most, longest);
  });
}

TokenService::~TokenService() {
  if (state_->expiry) state_->expiry->stop();
  std::set<std::shared_ptr<PermitSeat>> seats;
  {
    const std::lock_guard lock(state_->seats_mutex);
    state_->stopping = true;
    seats = state_->seats;
  }
  for (const auto& seat : seats) seat->leave();
  std::unique_lock lock(state_->seats_mutex);  // waiting callers read this object once more
  state_->seat_left.wait(lock, [this] { return state_->seats.empty(); });
}

void TokenService::limit(const std::string& limiter, std::int64_t limit) {
  auto opened = state_->limiters->open(limiter, limit);
  const std::unique_lock lock(state_->names_mutex);
  // The known limiter stays: granted tokens refer to it, and requests wait in its line.
  state_->names.try_emplace(limiter, std::move(opened));
}

std::vector<TokenView> TokenService::outstanding(std::size_t most) const {
  std::vector<TokenView> all;
  const Time now = steady_clock::now();
  for (const Shard& shard : state_->shards) {
    const std::lock_guard lock(shard.mutex);
    for (const auto& [number, held] : shard.held) {
      all.push_back({.token = {state_->id, number},
                     .limiter = held.limiter->name(),
                     .count = held.permit.count(),
                     .held_for = std::chrono::duration_cast<milliseconds>(now - held.since),
                     .lost = held.lost()});
    }
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.held_for > b.held_for; });
  if (all.size() > most) all.resize(most);
  return all;
}

std::size_t TokenService::waiting() const {
  const std::lock_guard lock(state_->seats_mutex);
  return state_->seats.size();
}

TokenService::Counts TokenService::counts() const {
  return {.granted = state_->granted,
          .refused = state_->refused,
          .timed_out = state_->timed_out,
          .held_too_long = state_->held_too_long,
          .taken_back = state_->taken_back};
}

std::string to_text(const TokenId& id) {
  std::array<char, 40> text{};
  const auto end = std::to_chars(text.data(), text.data() + 16, id.service, 16).ptr;
  *end = '-';
  return {text.data(), std::to_chars(end + 1, text.data() + text.size(), id.number).ptr};
}

std::optional<TokenId> parse_token_id(std::string_view text) {
  TokenId id;
  const char* end = text.data() + text.size();
  const auto service = std::from_chars(text.data(), end, id.service, 16);
  if (service.ec != std::errc{} || service.ptr == end || *service.ptr != '-') return std::nullopt;
  const auto number = std::from_chars(service.ptr + 1, end, id.number);
  if (number.ec != std::errc{} || number.ptr != end) return std::nullopt;
  return id;
}

std::string_view to_text(ReleaseAnswer answer) {
  static constexpr std::array<std::string_view, 6> kTexts{"released", "too late", "already",
                                                          "expired",  "foreign",  "unknown"};
  return kTexts.at(static_cast<std::size_t>(answer));
}
std::string_view to_text(KeepAnswer answer) {
  static constexpr std::array<std::string_view, 6> kTexts{"kept", "lost", "already", "expired", "foreign", "unknown"};
  return kTexts.at(static_cast<std::size_t>(answer));
}

}  // namespace turnstile
