#pragma once
// Virtual time: runs actions in the order of their times, and for equal times in the order of the calls.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace turnstile::simulation {

/// Microseconds of true time since the start of the run. No process knows it: each has a clock of its own.
using Time = std::int64_t;
inline constexpr Time kMillisecond = 1'000;
inline constexpr Time kSecond = 1'000'000;

class Schedule {
 public:
  using Action = std::function<void()>;

  [[nodiscard]] Time now() const { return now_; }

  void after(Time delay, Action action) {
    heap_.push_back({now_ + std::max<Time>(delay, 0), ++last_, std::move(action)});
    std::push_heap(heap_.begin(), heap_.end(), later);
  }

  void run_until(Time end) {
    while (!heap_.empty() && heap_.front().at <= end) {
      std::pop_heap(heap_.begin(), heap_.end(), later);
      const Item next = std::move(heap_.back());
      heap_.pop_back();
      now_ = next.at;
      next.action();
    }
    now_ = end;
  }

 private:
  struct Item {
    Time at = 0;
    std::uint64_t number = 0;
    Action action;
  };
  static bool later(const Item& a, const Item& b) { return a.at != b.at ? a.at > b.at : a.number > b.number; }

  Time now_ = 0;
  std::uint64_t last_ = 0;
  std::vector<Item> heap_;
};

}  // namespace turnstile::simulation
