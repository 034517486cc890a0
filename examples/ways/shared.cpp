#include "shared.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <chrono>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

Shared& Shared::make() {
  static_assert(std::atomic<long>::is_always_lock_free, "a lock would be one process's own");
  void* memory = ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::system_error(errno, std::generic_category(), "mmap");
  return *new (memory) Shared;
}

void Shared::meet() {
  const long mine = ++arrived_;
  const long all =
      (mine + static_cast<long>(kProcesses) - 1) / static_cast<long>(kProcesses) * static_cast<long>(kProcesses);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (arrived_ < all) {
    if (std::chrono::steady_clock::now() > deadline)
      throw std::runtime_error("the other process did not come within 30 s");
    std::this_thread::sleep_for(
        std::chrono::microseconds(50));  // std::atomic::wait() wakes only threads of one process
  }
}
