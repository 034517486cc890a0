#include "permits/domain_limiter.hpp"

#include <algorithm>
#include <atomic>

namespace turnstile::ports {

namespace {

/// For limiters that support only wakes. It asks again and again, until it gets a permit or the request is withdrawn. A
/// wake cannot be withdrawn, so it must not keep the limiter in which it waits.
class Asker : public std::enable_shared_from_this<Asker> {
 public:
  Asker(std::weak_ptr<Limiter> limiter, std::function<void(Permit)> deliver)
      : limiter_(std::move(limiter)), deliver_(std::move(deliver)) {}

  void ask() {
    const auto limiter = limiter_.lock();
    if (!limiter) return;
    limiter->when_free([self = shared_from_this()] {
      const auto asked = self->limiter_.lock();
      if (self->over_ || !asked) return;
      Permit permit = asked->try_acquire();
      if (!permit) self->ask();
      else if (!self->over_.exchange(true)) self->deliver_(std::move(permit));
    });
  }
  bool withdraw() { return !over_.exchange(true); }

 private:
  const std::weak_ptr<Limiter> limiter_;
  const std::function<void(Permit)> deliver_;
  std::atomic<bool> over_{false};
};

}  // namespace

// --- defaults of Limiter ---------------------------------------------------------------------------------------------

Permit Limiter::try_acquire_fairly(std::int64_t count) { return count == 1 ? try_acquire() : Permit(); }

std::function<bool()> Limiter::acquire_later(std::int64_t /*count*/, Priority /*priority*/,
                                             std::function<void(Permit)> deliver) {
  const auto asker = std::make_shared<Asker>(weak_from_this(), std::move(deliver));
  asker->ask();
  return [asker] { return asker->withdraw(); };
}

}  // namespace turnstile::ports

namespace turnstile::detail {

namespace {

PermitPool::Count count_of(std::int64_t count) {
  return static_cast<PermitPool::Count>(std::max<std::int64_t>(count, 0));
}

}  // namespace

// --- over a pool -----------------------------------------------------------------------------------------------------

DomainLimiter::DomainLimiter(std::string name, std::shared_ptr<PermitPool> pool,
                             std::function<ports::LimiterState()> look, bool outlives_fence)
    : name_(std::move(name)),
      pool_(std::move(pool)),
      look_(std::move(look)),
      party_(pool_->add_party(outlives_fence)) {}

DomainLimiter::~DomainLimiter() { pool_->remove_party(party_); }

Permit DomainLimiter::permit(PermitPool::Taken taken, std::int64_t count) {
  if (!taken) return {};
  return {shared_from_this(), taken.token, std::move(taken.lost), count};
}

Permit DomainLimiter::try_acquire() {
  Permit taken = permit(pool_->try_take_as_woken(party_), 1);
  if (!taken) pool_->refused(1);
  return taken;
}

void DomainLimiter::when_free(std::function<void()> wake) { pool_->when_free(std::move(wake), party_); }

Permit DomainLimiter::try_acquire_fairly(std::int64_t count) {
  return permit(pool_->try_take(count_of(count), party_), count);
}

std::function<bool()> DomainLimiter::acquire_later(std::int64_t count, Priority priority,
                                                   std::function<void(Permit)> deliver) {
  const std::shared_ptr<ports::Limiter> self = shared_from_this();
  const auto number = pool_->take_later(
      count_of(count), priority == Priority::urgent,
      [self, count, deliver = std::move(deliver)](PermitPool::Taken taken) {
        deliver(Permit(self, taken.token, std::move(taken.lost), count));
      },
      party_);
  return [pool = pool_, number] { return pool->withdraw(number); };
}

void DomainLimiter::expect(std::int64_t at_once) { pool_->expect(count_of(at_once)); }

ports::LimiterState DomainLimiter::state() const {
  ports::LimiterState state = look_();
  state.in_use = static_cast<std::int64_t>(pool_->in_use());
  state.most_in_use = static_cast<std::int64_t>(pool_->most_in_use());
  state.waiting = static_cast<std::int64_t>(pool_->waiting());
  return state;
}

void DomainLimiter::release_several(std::uint64_t token, std::int64_t count) noexcept {
  pool_->give_back(token, count_of(count));
}

}  // namespace turnstile::detail
