#include "engine/permit_requests.hpp"

#include <utility>

namespace turnstile::detail {

void PermitRequests::ask(ports::Limiter& limiter, std::function<void(Permit)> deliver) {
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (over_) return;
    number = ++last_;
    waiting_.try_emplace(number);
  }
  auto withdraw = limiter.acquire_later(
      1, Priority::normal, [requests = weak_from_this(), number, deliver = std::move(deliver)](Permit permit) {
        if (const auto self = requests.lock()) self->forget(number);
        deliver(std::move(permit));
      });
  {
    const std::lock_guard lock(mutex_);
    const auto made = waiting_.find(number);
    if (made != waiting_.end()) made->second = std::exchange(withdraw, nullptr);
    else if (!over_) return;  // it was delivered
  }
  if (withdraw) withdraw();
}

void PermitRequests::forget(std::uint64_t number) {
  Waiting::node_type delivered;  // destroyed without the lock
  const std::lock_guard lock(mutex_);
  delivered = waiting_.extract(number);
}

void PermitRequests::withdraw_all() {
  Waiting waiting;
  {
    const std::lock_guard lock(mutex_);
    over_ = true;
    waiting.swap(waiting_);
  }
  for (const auto& [number, withdraw] : waiting) {
    if (withdraw) withdraw();
  }
}

}  // namespace turnstile::detail
