#include "tests/bench/board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/bench/bench_common.hpp"

namespace bench {

Board::Board(const std::string& file, std::int64_t slot) {
  const int descriptor = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  void* memory = descriptor < 0
                     ? MAP_FAILED
                     : ::mmap(nullptr, sizeof(BoardLayout), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (memory == MAP_FAILED) die("cannot map " + file);
  ::close(descriptor);
  if (slot < 0 || slot >= 8) die("--slot: 0 to 7");
  all_ = static_cast<BoardLayout*>(memory);
  slot_ = &all_->slots[slot];
}

void Board::start() {
  slot_->starts += 1;
  const std::int64_t running = ++all_->running - all_->gone;
  std::int64_t most = all_->most;
  while (running > most && !all_->most.compare_exchange_weak(most, running)) {
  }
}

void Board::stop(std::int64_t started_ns) {
  slot_->held_ns += now_ns() - started_ns;
  --all_->running;
  slot_->stops += 1;
}

}  // namespace bench
