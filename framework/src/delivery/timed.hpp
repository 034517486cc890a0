#pragma once
// Measures a part of a batch for its BatchReport.

#include <chrono>

namespace turnstile::detail {

/// Adds the time of its own life to `sum`.
class Timed {
 public:
  explicit Timed(std::chrono::nanoseconds& sum) noexcept : sum_(sum), since_(Clock::now()) {}
  ~Timed() { sum_ += Clock::now() - since_; }
  Timed(const Timed&) = delete;
  Timed& operator=(const Timed&) = delete;

 private:
  using Clock = std::chrono::steady_clock;
  std::chrono::nanoseconds& sum_;
  const Clock::time_point since_;
};

}  // namespace turnstile::detail
