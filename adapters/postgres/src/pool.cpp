#include "pool.hpp"

#include <algorithm>

namespace turnstile::postgres {

Pool::Loan Pool::take() {
  {
    std::unique_lock lock(mutex_);
    returned_.wait(lock, [&] { return most_ == 0 || lent_ < most_; });
    ++lent_;
    if (auto link = take_idle()) {
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

std::unique_ptr<Link> Pool::take_idle() {
  if (idle_.empty()) return nullptr;
  const auto mine = std::find_if(idle_.rbegin(), idle_.rend(),
                                 [me = std::this_thread::get_id()](const auto& link) { return link->user == me; });
  auto& chosen = mine == idle_.rend() ? idle_.back() : *mine;
  std::swap(chosen, idle_.back());
  auto link = std::move(idle_.back());
  idle_.pop_back();
  return link;
}

void Pool::give_back(std::unique_ptr<Link> link) noexcept {
  if (link && !link->connection.idle()) link.reset();
  if (link) link->user = std::this_thread::get_id();
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
