#pragma once
// The blocks of a lane, which own the bytes of its messages. A block is spent when all its messages are settled,
// independently of older blocks. Pure; not thread-safe.

#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "delivery/work.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

class HeldBlocks {
 public:
  /// `end`: the number after its last message. `unsettled`: how many of its messages were added to the lane.
  void add(std::unique_ptr<ports::Block> block, Seq end, std::size_t unsettled, std::size_t bytes) {
    if (unsettled == 0) return spent_.push_back(std::move(block));
    bytes_ += bytes;
    mean_bytes_ = bytes / unsettled;
    held_.push_back({std::move(block), end, unsettled, bytes});
  }
  /// The message is settled now.
  void settled(Seq seq) {
    auto held = held_.begin();
    if (seq >= held->end)
      held = std::upper_bound(held, held_.end(), seq, [](Seq number, const Held& block) { return number < block.end; });
    if (--held->unsettled > 0) return;
    bytes_ -= held->bytes;
    spent_.push_back(std::move(held->block));
    held_.erase(held);
  }
  /// Blocks stay until each lend() has its return_lent().
  void lend() noexcept { ++lent_; }
  void return_lent() noexcept { --lent_; }
  std::vector<std::unique_ptr<ports::Block>> take_spent() {
    if (lent_ > 0) return {};
    return std::exchange(spent_, {});
  }
  /// Approximate memory of the blocks that are not spent.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The mean size of the messages in the last block. 0: there was none yet.
  [[nodiscard]] std::size_t mean_bytes() const noexcept { return mean_bytes_; }

 private:
  struct Held {
    std::unique_ptr<ports::Block> block;
    Seq end = 0;
    std::size_t unsettled = 0;
    std::size_t bytes = 0;
  };
  std::deque<Held> held_;  ///< oldest first
  std::size_t bytes_ = 0;  ///< of held_
  std::size_t mean_bytes_ = 0;
  std::vector<std::unique_ptr<ports::Block>> spent_;
  int lent_ = 0;  ///< look-ups in progress
};

}  // namespace turnstile::detail
