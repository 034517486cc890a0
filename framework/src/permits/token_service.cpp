#include "turnstile/token_service.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <limits>
#include <map>
#include <mutex>
#include <random>
#include <set>
#include <shared_mutex>

#include "permits/permit_seat.hpp"
#include "permits/token_shard.hpp"
#include "support/deadline.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// Tokens are divided into this number of shards.
constexpr std::size_t kShards = 16;

std::uint64_t random_id() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace

struct TokenService::State : std::enable_shared_from_this<State> {
  std::shared_ptr<ports::Limiters> limiters;
  TokenServiceSettings settings;
  std::unique_ptr<ExpiryStrategy> expiry;
  const std::uint64_t id = random_id();

  mutable std::shared_mutex names_mutex;
  std::map<std::string, std::shared_ptr<ports::Limiter>, std::less<>> names;

  std::array<detail::TokenShard, kShards> shards;
  std::atomic<std::uint64_t> last_number{0};

  std::mutex seats_mutex;
  std::condition_variable seat_left;
  std::set<std::shared_ptr<detail::PermitSeat>> seats;
  bool stopping = false;

  std::atomic<std::uint64_t> granted{0}, refused{0}, timed_out{0}, held_too_long{0}, taken_back{0};

  detail::TokenShard& shard(std::uint64_t number) { return shards[number % kShards]; }
  std::shared_ptr<ports::Limiter> find(std::string_view name) const {
    const std::shared_lock lock(names_mutex);
    const auto found = names.find(name);
    return found == names.end() ? nullptr : found->second;
  }
  std::optional<Refused> cannot(std::string_view name, const ports::Limiter* limiter, std::int64_t count) const;
  /// `kept` keeps the state alive: the service may be destroyed while the caller waits.
  std::variant<Permit, Refused, TimedOut> take(std::string_view name, std::int64_t count, Priority priority,
                                               milliseconds timeout, const std::stop_token& stop,
                                               std::shared_ptr<State>& kept);
  std::variant<Permit, Refused, TimedOut> wait(ports::Limiter& limiter, std::int64_t count, Priority priority,
                                               milliseconds timeout, const std::stop_token& stop);
  /// The result for a token that is not held.
  template <class Answer>
  Answer about_absent(const detail::TokenShard& of, std::uint64_t number) const {
    if (of.expired.contains(number)) return Answer::expired;
    return number > 0 && number <= last_number ? Answer::already : Answer::unknown;
  }
  Granted enter(Permit permit, const ports::Limiter* limiter);
  std::size_t expire(std::size_t most, std::chrono::microseconds longest);
  bool take_back(detail::HeldToken& held, detail::TokenTime now);
};

// --- requests --------------------------------------------------------------------------------------------------------

/// Why the request can never be granted.
std::optional<Refused> TokenService::State::cannot(std::string_view name, const ports::Limiter* limiter,
                                                   std::int64_t count) const {
  const auto refuse = [](Refused::Why why, std::string text) { return Refused{why, std::move(text)}; };
  if (limiter == nullptr) {
    return refuse(
        Refused::Why::unknown_limiter,
        "limiter '" + std::string(name) + "' is unknown to this token service; call limit(name, number) first");
  }
  if (count == 1) return std::nullopt;
  const auto limit = limiter->state().limit;
  if (count < 1 || (limit > 0 && count > limit)) {
    return refuse(Refused::Why::bad_count, "limiter '" + std::string(name) + "' has a limit of " +
                                               std::to_string(limit) + ", so it can never grant a request for " +
                                               std::to_string(count));
  }
  if (!limiter->gives_several()) {
    return refuse(Refused::Why::bad_count,
                  "limiter '" + std::string(name) + "' gives 1 permit at a time, not " + std::to_string(count));
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
  if (auto why = detail::PermitSeat::why_halted(*limiters); !why.empty())
    return Refused{Refused::Why::no_more_starts, std::move(why)};
  if (timeout <= milliseconds(0)) {
    limiter->refused(count);
    return TimedOut{};
  }
  kept = shared_from_this();
  return wait(*limiter, count, priority, timeout, stop);
}

std::variant<Permit, Refused, TimedOut> TokenService::State::wait(ports::Limiter& limiter, std::int64_t count,
                                                                  Priority priority, milliseconds timeout,
                                                                  const std::stop_token& stop) {
  const auto seat = std::make_shared<detail::PermitSeat>();
  {
    const std::lock_guard lock(seats_mutex);
    if (stopping) return Refused{Refused::Why::stopped, "the token service is stopping"};
    if (seats.size() >= settings.most_waiting) {
      return Refused{Refused::Why::queue_full, "limiter '" + limiter.name() + "': " + std::to_string(seats.size()) +
                                                   " requests are waiting already"};
    }
    seats.insert(seat);
  }
  detail::PermitSeat::Waited waited;
  {
    const std::stop_callback on_stop(stop, [seat] { seat->leave(); });
    waited = seat->wait(limiter, *limiters, count, priority, detail::deadline_after(timeout));
  }
  bool over = false;
  {
    const std::lock_guard guard(seats_mutex);
    over = stopping;
    seats.erase(seat);
    seat_left.notify_all();  // under the lock: the service may be destroyed as soon as the lock is released
  }
  if (waited.permit) return std::move(waited.permit);
  if (over) return Refused{Refused::Why::stopped, "the token service is stopping"};
  if (stop.stop_requested()) return Refused{Refused::Why::cancelled, "the caller's stop_token was set"};
  if (!waited.why_halted.empty()) return Refused{Refused::Why::no_more_starts, std::move(waited.why_halted)};
  return TimedOut{};
}

Granted TokenService::State::enter(Permit permit, const ports::Limiter* limiter) {
  const std::uint64_t number = last_number.fetch_add(1, std::memory_order_relaxed) + 1;
  Granted answer{.token = {id, number}, .lost = permit.lost()};
  detail::HeldToken held{
      .permit = std::move(permit), .limiter = limiter, .since = steady_clock::now(), .due = {}, .overdue = false};
  detail::TokenShard& into = shard(number);
  if (settings.hold_timeout.count() > 0) {
    held.due = held.since + settings.hold_timeout;
    held.loss = detail::TokenLoss::of(held.permit.lost());
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
  detail::TokenShard& shard = s.shard(token.number);
  std::unique_lock lock(shard.mutex);
  const auto found = shard.held.find(token.number);
  if (found == shard.held.end()) return s.about_absent<ReleaseAnswer>(shard, token.number);
  detail::HeldToken held = std::move(found->second);
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
  detail::TokenShard& shard = s.shard(token.number);
  const std::lock_guard lock(shard.mutex);
  const auto found = shard.held.find(token.number);
  if (found == shard.held.end()) return s.about_absent<KeepAnswer>(shard, token.number);
  detail::HeldToken& held = found->second;
  if (held.lost()) return KeepAnswer::lost;
  if (!held.loss) return KeepAnswer::kept;
  shard.due.erase({held.due, token.number});
  held.due = steady_clock::now() + s.settings.hold_timeout;
  held.overdue = false;
  shard.due.insert({held.due, token.number});
  return KeepAnswer::kept;
}

/// Whether to take the permit back now. If not, sets when to check again.
bool TokenService::State::take_back(detail::HeldToken& held, detail::TokenTime now) {
  if (held.overdue) return true;
  held.overdue = true;
  held.due = std::max(held.since, held.due - settings.hold_timeout) + settings.hold_timeout * settings.hard_bound;
  held_too_long.fetch_add(1, std::memory_order_relaxed);
  return settings.on_hold == OnHold::release || held.due <= now;
}

std::size_t TokenService::State::expire(std::size_t most, std::chrono::microseconds longest) {
  const detail::TokenTime began = steady_clock::now();
  std::size_t handled = 0, left = 0;
  for (detail::TokenShard& shard : shards) {
    for (bool more = true; more;) {
      detail::HeldToken taken;
      std::stop_source cancel{std::nostopstate};
      {
        const std::lock_guard lock(shard.mutex);
        const detail::TokenTime now = steady_clock::now();
        const auto first = shard.due.begin();
        if (first == shard.due.end() || first->first > now) break;
        if (handled >= most || now - began > longest) {
          left += static_cast<std::size_t>(
              std::distance(first, shard.due.upper_bound({now, std::numeric_limits<std::uint64_t>::max()})));
          break;
        }
        ++handled;
        const std::uint64_t number = first->second;
        detail::HeldToken& held = shard.held.at(number);
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

TokenService::TokenService(std::shared_ptr<ports::Limiters> limiters, TokenServiceSettings settings,
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
  std::set<std::shared_ptr<detail::PermitSeat>> seats;
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
  const detail::TokenTime now = steady_clock::now();
  for (const detail::TokenShard& shard : state_->shards) {
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

}  // namespace turnstile
