#pragma once
// The port Limiter over a permit pool.

#include <functional>
#include <memory>
#include <string>

#include "permits/permit_pool.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile::detail {

/// A party of the pool. Thread-safe.
class DomainLimiter final : public ports::Limiter {
 public:
  /// `look` returns what the domain knows: the limit in effect, and what this process holds and is entitled to. For
  /// `outlives_fence` see PermitPool::add_party().
  DomainLimiter(std::string name, std::shared_ptr<PermitPool> pool, std::function<ports::LimiterState()> look,
                bool outlives_fence = false);
  ~DomainLimiter() override;
  DomainLimiter(const DomainLimiter&) = delete;
  DomainLimiter& operator=(const DomainLimiter&) = delete;

  const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override;
  void when_free(std::function<void()> wake) override;
  ports::LimiterState state() const override;
  Permit try_acquire_fairly(std::int64_t count) override;
  std::function<bool()> acquire_later(std::int64_t count, Priority priority,
                                      std::function<void(Permit)> deliver) override;
  bool gives_several() const noexcept override { return true; }
  void refused(std::int64_t count) override { pool_->refused(static_cast<PermitPool::Count>(count)); }
  void expect(std::int64_t at_once) override;

 protected:
  void release(std::uint64_t token) noexcept override { pool_->give_back(token, 1); }
  void release_several(std::uint64_t token, std::int64_t count) noexcept override;
  bool still_holds(std::uint64_t token) const noexcept override { return pool_->holds(token); }

 private:
  Permit permit(PermitPool::Taken taken, std::int64_t count);

  const std::string name_;
  const std::shared_ptr<PermitPool> pool_;
  const std::function<ports::LimiterState()> look_;
  const PermitPool::Party party_;
};

}  // namespace turnstile::detail
