#include "turnstile/ids.hpp"

#include <openssl/rand.h>

#include <algorithm>
#include <atomic>
#include <chrono>

#include "turnstile/error.hpp"

namespace turnstile {

namespace {

/// The bits of the counter below the milliseconds: 4,096 ids in each millisecond. Beyond that, the id's time runs ahead
/// of the clock.
constexpr int kCounterBits = 12;

/// Milliseconds and counter. Each call returns a greater value.
std::uint64_t next_tick() {
  static std::atomic<std::uint64_t> last{0};
  const auto now =
      std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::uint64_t earliest = static_cast<std::uint64_t>(now.count()) << kCounterBits;
  std::uint64_t before = last.load(std::memory_order_relaxed), tick = 0;
  do {
    tick = std::max(earliest, before + 1);
  } while (!last.compare_exchange_weak(before, tick, std::memory_order_relaxed));
  return tick;
}

}  // namespace

MessageId new_message_id() {
  MessageId id;
  // OpenSSL's generator notices a fork. A buffer of random bytes in this process would not.
  if (RAND_bytes(id.bytes.data() + 8, 8) != 1)
    throw Error(Code::unexpected, "the system has no random numbers for a message id");
  const std::uint64_t tick = next_tick();
  const std::uint64_t time_and_version = (tick >> kCounterBits) << 16 | 0x7000U | (tick & 0x0FFFU);
  for (std::size_t i = 0; i < 8; ++i) id.bytes[i] = static_cast<std::uint8_t>(time_and_version >> (56 - 8 * i));
  id.bytes[8] = static_cast<std::uint8_t>((id.bytes[8] & 0x3FU) | 0x80U);
  return id;
}

}  // namespace turnstile
