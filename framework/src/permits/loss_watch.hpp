#pragma once
// Tells the users of permits that these are lost, at the deadlines of a member. A thread of its own does so, because
// the domain's thread can stand in a call of Kafka's client for seconds, and others use the permits by then.

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "permits/named_limiter.hpp"

namespace turnstile::detail {

/// Thread-safe. Pools are told without a lock, because they run callbacks of users.
class LossWatch final : public std::enable_shared_from_this<LossWatch> {
 public:
  using Micros = tokens::Micros;

  explicit LossWatch(std::function<Micros()> clock) : clock_(std::move(clock)) {}

  /// Without it, only look() tells the pools: the simulator has no threads.
  void start();
  void stop();
  /// The pools of the member from now on.
  void watch(const std::vector<MemberPool>& pools);
  /// The member has its permits until this time. Once the last deadline was acted on, only a later time counts.
  void extend(Micros held_until);
  /// The member has its reserves until this time; 0: it has none.
  void reserve_until(Micros time);
  /// The own deadline; 0 after it was acted on.
  [[nodiscard]] Micros held_until() const;
  /// Acts on deadlines that have passed.
  void look();

 private:
  void run();
  [[nodiscard]] Micros due() const;  ///< 0: never

  const std::function<Micros()> clock_;
  mutable std::mutex mutex_;  ///< protects the following members
  std::condition_variable changed_;
  std::vector<std::shared_ptr<PermitPool>> pools_;
  Micros held_until_ = 0, reserve_until_ = 0;  ///< 0: none, or it was acted on
  Micros acted_on_ = 0;                        ///< the last held_until_ that was
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace turnstile::detail
