#include "pool.hpp"

namespace turnstile::postgres {

Pool::Loan Pool::take() {
  {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return most_ == 0 || lent_ < most_; });
    ++lent_;
    if (!idle_.empty()) {
      auto link = std::move(idle_.back());
      idle_.pop_back();
      link->used = true;
      return {*this, std::move(link)};
    }
  }
  try {
    return {*this, std::make_unique<Link>(settings_)};
  } catch (...) {
    give_back(nullptr);
    throw;
  }
}

void Pool::give_back(std::unique_ptr<Link> link) noexcept {
  if (link && !link->connection.idle()) link.reset();
  {
    const std::lock_guard lock(mutex_);
    --lent_;
    if (link) idle_.push_back(std::move(link));
  }
  returned_.notify_one();
}

void Pool::close_idle() noexcept {
  std::vector<std::unique_ptr<Link>> closing;
  const std::lock_guard lock(mutex_);
  closing.swap(idle_);
}

}  // namespace turnstile::postgres
