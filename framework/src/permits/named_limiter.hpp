#pragma once
// A limiter that this process uses, with its pool. It moves once to another member, if its log is divided.

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "permits/domain_reports.hpp"
#include "permits/permit_pool.hpp"
#include "support/wake_up.hpp"

namespace turnstile::detail {

class DomainMember;

/// Wakes the member that a pool belongs to. A pool of permits that are still in use keeps it after the end of the
/// domain. Thread-safe.
class PoolBell {
 public:
  using Member = WakeUp<DomainMember>;
  explicit PoolBell(std::shared_ptr<Member> member) : first_(std::move(member)), now_(first_.get()) {}
  /// At most once.
  void move_to(std::shared_ptr<Member> member) {
    second_ = std::move(member);
    now_.store(second_.get());
  }
  [[nodiscard]] Member& now() const { return *now_.load(); }

 private:
  const std::shared_ptr<Member> first_;
  std::shared_ptr<Member> second_;
  std::atomic<Member*> now_;
};

struct NamedLimiter {
  std::int64_t limit = 0;  ///< configured in this process
  std::shared_ptr<PoolBell> bell;
  std::shared_ptr<PermitPool> pool;
  std::weak_ptr<int> users;     ///< kept by every limiter of this name, and through it by its permits
  bool outlives_fence = false;  ///< one of its users outlives a fence
  ReportedLimiter reported;
  std::uint32_t home = 0;  ///< its part of a divided log; 0: not looked up yet
};

/// The copy of a pool's data that a member's thread has.
struct MemberPool {
  std::string name;
  std::shared_ptr<PermitPool> pool;
  tokens::Count limit = tokens::kMostPermits;  ///< shared by all members
  bool admits = false;                         ///< whether parties that outlive a fence get permits
};

using NamedLimiters = std::map<std::string, NamedLimiter>;

}  // namespace turnstile::detail
