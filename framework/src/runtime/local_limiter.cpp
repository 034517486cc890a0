#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "turnstile/error.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {
namespace {

class LocalLimiter final : public Limiter {
 public:
  LocalLimiter(std::string name, std::int64_t limit) : name_(std::move(name)) { state_.limit = limit; }

  const std::string& name() const noexcept override { return name_; }

  Permit try_acquire() override {
    const std::lock_guard lock(mutex_);
    if (!is_free()) return {};
    ++state_.in_use;
    state_.most_in_use = std::max(state_.most_in_use, state_.in_use);
    return Permit(shared_from_this(), ++last_token_, {});
  }

  void when_free(std::function<void()> wake) override {
    {
      const std::lock_guard lock(mutex_);
      if (!is_free()) {
        waiting_.push_back(std::move(wake));
        return;
      }
    }
    wake();
  }

  LimiterState state() const override {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 protected:
  // One after another in the order in which they asked, until the permit is taken again: a waiter that has lost its
  // interest must not keep the permit from those behind it. Each call is made without the lock, because it may come
  // back to try_acquire().
  void release(std::uint64_t) noexcept override {
    std::unique_lock lock(mutex_);
    --state_.in_use;
    while (is_free() && !waiting_.empty()) {
      const auto wake = std::move(waiting_.front());
      waiting_.pop_front();
      lock.unlock();
      wake();
      lock.lock();
    }
  }

 private:
  bool is_free() const { return state_.in_use < state_.limit; }

  const std::string name_;
  mutable std::mutex mutex_;
  LimiterState state_;
  std::uint64_t last_token_ = 0;
  std::deque<std::function<void()>> waiting_;  ///< not empty only while no permit is free, or while release() wakes
};

class LocalLimiters final : public Limiters {
 public:
  std::shared_ptr<Limiter> open(const std::string& name, std::int64_t limit) override {
    if (limit < 1) {
      throw Error("limiter '" + name + "': a limit of " + std::to_string(limit) +
                  " lets nothing run; it must be at least 1");
    }
    const std::lock_guard lock(mutex_);
    auto& limiter = by_name_[name];
    if (!limiter) limiter = std::make_shared<LocalLimiter>(name, limit);
    const auto known = limiter->state().limit;
    if (known != limit) {
      throw Error("limiter '" + name + "' has a limit of " + std::to_string(known) + " and cannot also have " +
                  std::to_string(limit) + "; set the same limit wherever it is named, or name another limiter");
    }
    return limiter;
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Limiter>> by_name_;
};

}  // namespace

std::shared_ptr<Limiters> make_local_limiters() { return std::make_shared<LocalLimiters>(); }

}  // namespace turnstile
