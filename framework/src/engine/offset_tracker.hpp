#pragma once
// Which messages of a partition are settled, when they settle in any order. Pure; not thread-safe.
//
// A message is known by its number in the order of taking (`seq`, from 0), not by its offset, since offsets have gaps.
// `Entry` carries what the caller wants to keep with each open message.
//
// What is kept is in proportion to what is not settled: an unsettled message with many settled ones behind it is put aside, so that these
// can be forgotten.

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "delivery/work.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

template <class Entry>
class OffsetTracker {
 public:
  /// `many`: so many settled messages behind an unsettled one cost more than putting it aside.
  explicit OffsetTracker(std::size_t many = 1'024) : many_(many) {}

  /// Takes a message in. False, and nothing happens, when its offset was taken before: librdkafka can deliver one twice
  /// in consecutive polls.
  bool take(Offset offset, Entry entry) {
    if (last_taken_ && offset <= *last_taken_) return false;
    if (!last_taken_) first_ = offset;
    if (!position_) position_ = offset;
    last_taken_ = offset;
    open_.push_back({offset, false, std::move(entry)});
    return true;
  }

  /// There is no message between the last one taken and this offset, and never will be.
  void pass(Offset offset) {
    if (last_taken_ && offset <= *last_taken_) return;
    passed_ = offset;
    settle_gap();
  }

  /// Marks one as settled; settling twice, or one that has gone by, changes nothing. True when it was open.
  bool settle(Seq seq) {
    if (!is_open(seq)) return false;
    if (seq < base_) {
      aside_.erase(seq);
    } else {
      slot(seq).settled = true;
      ++settled_;
      drop_settled();
    }
    settle_gap();
    return true;
  }

  /// Puts unsettled messages aside that hold up many settled ones, and tells of each: `on_aside(seq)`.
  template <class OnAside>
  void put_aside(OnAside&& on_aside) {
    while (settled_ >= many_ && settled_ >= open_.size() / 2) {
      Slot& front = open_.front();  // not settled: those that are were dropped
      on_aside(base_);
      position_ = front.offset + 1;
      aside_.emplace(base_, std::move(front));
      open_.pop_front();
      ++base_;
      drop_settled();
    }
  }

  /// Every message below it is settled: the offset to commit. Nothing before the first message is taken.
  [[nodiscard]] std::optional<Offset> position() const noexcept {
    return aside_.empty() ? position_ : std::optional(aside_.begin()->second.offset);
  }
  /// The first message that was taken.
  [[nodiscard]] std::optional<Offset> first() const noexcept { return first_; }
  /// Those that are not settled.
  [[nodiscard]] std::set<Offset> open_offsets() const {
    std::set<Offset> offsets;
    for (const auto& [seq, slot] : aside_) offsets.insert(offsets.end(), slot.offset);
    for (const Slot& slot : open_) {
      if (!slot.settled) offsets.insert(offsets.end(), slot.offset);
    }
    return offsets;
  }
  /// Behind the last one that was taken.
  [[nodiscard]] std::optional<Offset> taken_up_to() const noexcept {
    return last_taken_ ? std::optional(*last_taken_ + 1) : std::nullopt;
  }
  /// The oldest message that is not settled, if any is.
  [[nodiscard]] std::optional<Seq> oldest() const noexcept {
    if (!aside_.empty()) return aside_.begin()->first;
    return open_.empty() ? std::nullopt : std::optional(base_);
  }
  /// Number of the oldest message that was not put aside; all before it are settled, or aside.
  [[nodiscard]] Seq base() const noexcept { return base_; }
  /// One more than the number of the newest.
  [[nodiscard]] Seq end() const noexcept { return base_ + open_.size(); }
  /// Messages kept: unsettled ones and those settled behind an unsettled one.
  [[nodiscard]] std::size_t kept() const noexcept { return open_.size() + aside_.size(); }
  [[nodiscard]] std::size_t unsettled() const noexcept { return open_.size() - settled_ + aside_.size(); }
  [[nodiscard]] bool is_open(Seq seq) const noexcept {
    if (seq < base_) return !aside_.empty() && aside_.contains(seq);
    return seq < end() && !slot(seq).settled;
  }

  [[nodiscard]] Offset offset(Seq seq) const noexcept { return slot(seq).offset; }
  [[nodiscard]] Entry& entry(Seq seq) noexcept { return slot(seq).entry; }
  [[nodiscard]] const Entry& entry(Seq seq) const noexcept { return slot(seq).entry; }

 private:
  struct Slot {
    Offset offset;
    bool settled;
    Entry entry;
  };
  Slot& slot(Seq seq) noexcept {
    return seq < base_ ? aside_.find(seq)->second : open_[static_cast<std::size_t>(seq - base_)];
  }
  const Slot& slot(Seq seq) const noexcept {
    return seq < base_ ? aside_.find(seq)->second : open_[static_cast<std::size_t>(seq - base_)];
  }
  void drop_settled() {
    while (!open_.empty() && open_.front().settled) {
      position_ = open_.front().offset + 1;
      open_.pop_front();
      ++base_;
      --settled_;
    }
  }
  void settle_gap() {
    if (!passed_ || !open_.empty()) return;
    if (!position_ || *passed_ > *position_) position_ = passed_;
    passed_.reset();
  }

  std::size_t many_;
  std::deque<Slot> open_;
  std::map<Seq, Slot> aside_;  ///< unsettled, from before base_
  std::size_t settled_ = 0;    ///< of open_
  Seq base_ = 0;
  std::optional<Offset> first_;
  std::optional<Offset> position_;  ///< all below it are settled, or aside
  std::optional<Offset> passed_;    ///< where the gap behind the last message ends
  std::optional<Offset> last_taken_;
};

}  // namespace turnstile
