#pragma once
// The two processes share the database and this memory, in which they wait for each other and count.

#include <array>
#include <atomic>
#include <cstddef>

inline constexpr std::size_t kProcesses = 2;
inline constexpr std::size_t kMostWays = 16;

class Shared {
 public:
  /// In memory that this process shares with the processes that it forks, until all of them have ended.
  static Shared& make();

  /// Returns when all processes have called it as often as the caller has. Throws std::runtime_error after 30 s.
  void meet();
  /// How many payments each process has applied, by way.
  std::array<std::array<std::atomic<int>, kProcesses>, kMostWays> applied{};

 private:
  std::atomic<long> arrived_{0};
};
