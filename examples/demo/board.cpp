#include "board.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <new>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "settings.hpp"

namespace demo {

struct Board::Head {
  std::int64_t capacity = 0;
  std::atomic<std::uint8_t> dead_bits{0};
  std::atomic<std::int64_t> redelivered{0};
  std::atomic<std::uint64_t> running{0};
  std::atomic<int> most_running{0};
  std::atomic<std::chrono::steady_clock::rep> above_lowered_at{0};  // the clock is the same in all processes
  std::atomic<int> most_since_above_lowered{0};
  std::array<Slot, kMostConsumers> slots{};
};

namespace {

/// In `seen_`: the record was counted as redelivered.
constexpr std::uint8_t kCountedBit = 0x80;
static_assert(kMostConsumers < 7, "bit 7 is taken");

std::uint8_t bit_of(int consumer) { return static_cast<std::uint8_t>(1U << static_cast<unsigned>(consumer - 1)); }

// The running handlers of all processes in one number, so that a reader sees them all at one instant.
constexpr unsigned kBitsEach = 16;
static_assert(kMostConsumers * kBitsEach <= 64);

std::uint64_t one_of(int consumer) { return std::uint64_t{1} << (kBitsEach * static_cast<unsigned>(consumer - 1)); }
std::uint64_t all_of(int consumer) { return one_of(consumer) * ((1U << kBitsEach) - 1); }

int sum(std::uint64_t running) {
  std::uint64_t total = 0;
  for (; running != 0; running >>= kBitsEach) total += running & ((1U << kBitsEach) - 1);
  return static_cast<int>(total);
}

void raise(std::atomic<int>& most, int now) {
  for (int before = most; before < now && !most.compare_exchange_weak(before, now);) {
  }
}

[[noreturn]] void fail(const std::string& what) { throw std::system_error(errno, std::generic_category(), what); }

}  // namespace

Board::Board(int file, bool fresh, std::int64_t capacity) {
  if (fresh) {
    size_ = sizeof(Head) + static_cast<std::size_t>(kPartitions * capacity);
    if (::ftruncate(file, static_cast<off_t>(size_)) != 0) fail("the demo's board: cannot make room");
  } else {
    struct stat status {};
    if (::fstat(file, &status) != 0) fail("the demo's board: cannot be looked at");
    size_ = static_cast<std::size_t>(status.st_size);
  }
  memory_ = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (memory_ == MAP_FAILED) fail("the demo's board: cannot be mapped");
  // A new file contains zeros, the start value of every counter.
  head_ = fresh ? new (memory_) Head{} : static_cast<Head*>(memory_);
  if (fresh) head_->capacity = capacity;
  seen_ = reinterpret_cast<std::atomic<std::uint8_t>*>(static_cast<char*>(memory_) + sizeof(Head));
}

Board Board::create(const std::string& file, std::int64_t capacity) {
  const int opened = ::open(file.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (opened < 0) fail(file);
  return Board(opened, true, capacity);
}

Board Board::open(const std::string& file) {
  const int opened = ::open(file.c_str(), O_RDWR | O_CLOEXEC);
  if (opened < 0) fail(file);
  return Board(opened, false, 0);
}

Board::Board(Board&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(other.size_), head_(other.head_), seen_(other.seen_) {}

Board::~Board() {
  if (memory_ != nullptr) ::munmap(memory_, size_);
}

Slot& Board::slot(int consumer) const { return head_->slots.at(static_cast<std::size_t>(consumer - 1)); }

std::span<Slot> Board::slots() const { return head_->slots; }

void Board::delivered(int consumer, std::int32_t partition, std::int64_t offset) const {
  slot(consumer).delivered.fetch_add(1);
  if (partition < 0 || partition >= kPartitions || offset < 0 || offset >= head_->capacity) {
    throw std::out_of_range("the demo was handed a record that it has not published");
  }
  std::atomic<std::uint8_t>& seen = seen_[partition * head_->capacity + offset];
  const std::uint8_t before = seen.fetch_or(bit_of(consumer));
  if ((before & head_->dead_bits.load()) == 0) return;
  if ((seen.fetch_or(kCountedBit) & kCountedBit) == 0) head_->redelivered.fetch_add(1);
}

void Board::handler_starts(int consumer) const {
  slot(consumer).starts.fetch_add(1);
  const int now = sum(head_->running.fetch_add(one_of(consumer)) + one_of(consumer));
  raise(head_->most_running, now);
  if (now > kLoweredLimit) {
    head_->most_since_above_lowered = 0;
    head_->above_lowered_at = std::chrono::steady_clock::now().time_since_epoch().count();
  } else {
    raise(head_->most_since_above_lowered, now);
  }
}

void Board::handler_stops(int consumer) const {
  head_->running.fetch_sub(one_of(consumer));
  slot(consumer).stops.fetch_add(1);
}

Board::AtLowered Board::at_lowered() const {
  using Clock = std::chrono::steady_clock;
  return {Clock::time_point(Clock::duration(head_->above_lowered_at.load())), head_->most_since_above_lowered.load()};
}

int Board::running() const { return sum(head_->running); }

int Board::most_running() const { return head_->most_running.load(); }

int Board::take_most_running() const { return head_->most_running.exchange(running()); }

void Board::killed(int consumer) const {
  head_->running.fetch_and(~all_of(consumer));
  head_->dead_bits.fetch_or(bit_of(consumer));
}

std::int64_t Board::redelivered() const { return head_->redelivered.load(); }

}  // namespace demo
