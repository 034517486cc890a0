#pragma once
// Which messages of a partition are settled, when they settle in any order. Pure; not thread-safe.
//
// A message is known by its number in the order of taking (`seq`, from 0), not by its offset, since offsets have gaps.
// `Entry` carries what the caller wants to keep with each open message.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <set>

#include "turnstile/types.hpp"

namespace turnstile {

using Seq = std::uint64_t;

template <class Entry>
class OffsetTracker {
 public:
  /// Takes a message in. False, and nothing happens, when its offset was taken before: librdkafka can deliver one twice
  /// in consecutive polls (trap 22).
  bool take(Offset offset, Entry entry) {
    if (last_taken_ && offset <= *last_taken_) return false;
    if (!last_taken_) first_ = position_ = offset;
    last_taken_ = offset;
    open_.push_back({offset, false, std::move(entry)});
    return true;
  }

  /// Marks one as settled; settling twice, or one that has gone by, changes nothing. True when it was open.
  bool settle(Seq seq) {
    if (!is_open(seq)) return false;
    slot(seq).settled = true;
    ++settled_;
    while (!open_.empty() && open_.front().settled) {
      position_ = open_.front().offset + 1;
      open_.pop_front();
      ++base_;
      --settled_;
    }
    return true;
  }

  /// Every message below it is settled: the offset to commit. Nothing before the first message is taken.
  [[nodiscard]] std::optional<Offset> position() const noexcept { return position_; }
  /// The first message that was taken.
  [[nodiscard]] std::optional<Offset> first() const noexcept { return first_; }
  /// Those at or above the position that are settled.
  [[nodiscard]] std::set<Offset> settled_ahead() const {
    std::set<Offset> offsets;
    if (settled_ == 0) return offsets;
    for (const Slot& slot : open_) {
      if (slot.settled) offsets.insert(offsets.end(), slot.offset);
    }
    return offsets;
  }
  /// Number of the oldest message that is kept; all before it are settled.
  [[nodiscard]] Seq base() const noexcept { return base_; }
  /// One more than the number of the newest.
  [[nodiscard]] Seq end() const noexcept { return base_ + open_.size(); }
  /// Messages kept: unsettled ones and those settled behind an unsettled one.
  [[nodiscard]] std::size_t kept() const noexcept { return open_.size(); }
  [[nodiscard]] std::size_t unsettled() const noexcept { return open_.size() - settled_; }
  [[nodiscard]] bool is_open(Seq seq) const noexcept { return seq >= base_ && seq < end() && !slot(seq).settled; }

  [[nodiscard]] Offset offset(Seq seq) const noexcept { return slot(seq).offset; }
  [[nodiscard]] Entry& entry(Seq seq) noexcept { return slot(seq).entry; }
  [[nodiscard]] const Entry& entry(Seq seq) const noexcept { return slot(seq).entry; }

 private:
  struct Slot {
    Offset offset;
    bool settled;
    Entry entry;
  };
  Slot& slot(Seq seq) noexcept { return open_[static_cast<std::size_t>(seq - base_)]; }
  const Slot& slot(Seq seq) const noexcept { return open_[static_cast<std::size_t>(seq - base_)]; }

  std::deque<Slot> open_;
  std::size_t settled_ = 0;
  Seq base_ = 0;
  std::optional<Offset> first_;
  std::optional<Offset> position_;
  std::optional<Offset> last_taken_;
};

}  // namespace turnstile
