#pragma once
// What the two processes share besides the database: memory in which they wait for one another and count.

#include <array>
#include <atomic>
#include <cstddef>

inline constexpr std::size_t kProcesses = 2;
inline constexpr std::size_t kMostWays = 16;

class Shared {
 public:
  /// In memory that this process and those that it forks have in common, until all of them have ended.
  static Shared& make();

  /// Returns when all processes have come here as often as the caller has. Throws std::runtime_error when they do not within 30 s.
  void meet();
  /// How many payments each process has applied, by way.
  std::array<std::array<std::atomic<int>, kProcesses>, kMostWays> applied{};

 private:
  std::atomic<long> arrived_{0};
};
