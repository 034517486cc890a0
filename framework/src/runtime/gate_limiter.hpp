#pragma once
// The Limiter port over a permit gate.

#include <functional>
#include <memory>
#include <string>

#include "runtime/permit_gate.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {

/// Thread-safe.
class GateLimiter final : public Limiter {
 public:
  /// `limit`: the one that holds now.
  GateLimiter(std::string name, std::shared_ptr<PermitGate> gate, std::function<std::int64_t()> limit);

  const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override;
  void when_free(std::function<void()> wake) override;
  LimiterState state() const override;
  Permit try_acquire_fairly(std::int64_t count) override;
  std::function<bool()> acquire_later(std::int64_t count, Priority priority,
                                      std::function<void(Permit)> deliver) override;
  bool gives_several() const noexcept override { return true; }
  void expect(std::int64_t at_once) override;

 protected:
  void release(std::uint64_t token) noexcept override { gate_->give_back(token, 1); }
  void release_several(std::uint64_t token, std::int64_t count) noexcept override;
  bool still_holds(std::uint64_t token) const noexcept override { return gate_->holds(token); }

 private:
  Permit permit(PermitGate::Taken taken, std::int64_t count);

  const std::string name_;
  const std::shared_ptr<PermitGate> gate_;
  const std::function<std::int64_t()> limit_;
};

}  // namespace turnstile
