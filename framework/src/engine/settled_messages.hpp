#pragma once
// Which messages of a partition are settled, if they settle in any order. Pure; not thread-safe.
//
// A message is identified by its number in the order of taking (`seq`, from 0), not by its offset, because offsets have
// gaps. `Entry` is the caller's data for each open message.
//
// Memory is proportional to the number of unsettled messages. If an unsettled message has many settled ones behind it,
// it is set aside, so that those can be dropped.

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <set>

#include "delivery/work.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

template <class Entry>
class SettledMessages {
 public:
  /// `many`: with this number of settled messages behind it, an unsettled message is set aside.
  explicit SettledMessages(std::size_t many = 1'024) : many_(many) {}

  /// Adds a message. Returns false and does nothing if its offset was added before: librdkafka can deliver a message
  /// twice in consecutive polls.
  bool take(Offset offset, Entry entry) {
    if (last_taken_ && offset <= *last_taken_) return false;
    if (!last_taken_) first_ = offset;
    if (!position_) position_ = offset;
    last_taken_ = offset;
    open_.push_back({offset, false, std::move(entry)});
    return true;
  }

  /// Between the last message and this offset there is no message, and never will be.
  void pass(Offset offset) {
    if (last_taken_ && offset <= *last_taken_) return;
    passed_ = offset;
    settle_gap();
  }

  /// Marks a message as settled. A message that is settled or dropped already does not change. True if it was open.
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

  /// Sets aside unsettled messages that have many settled ones behind them, and calls `on_aside(seq)` for each.
  template <class OnAside>
  void put_aside(OnAside&& on_aside) {
    while (settled_ >= many_ && settled_ >= open_.size() / 2) {
      Slot& front = open_.front();  // unsettled, because settled messages at the front were dropped
      on_aside(base_);
      position_ = front.offset + 1;
      aside_.emplace(base_, std::move(front));
      open_.pop_front();
      ++base_;
      drop_settled();
    }
  }

  /// Every message below it is settled. Absent before the first message is added.
  [[nodiscard]] std::optional<Offset> position() const noexcept {
    return aside_.empty() ? position_ : std::optional(aside_.begin()->second.offset);
  }
  /// The offset of the first message.
  [[nodiscard]] std::optional<Offset> first() const noexcept { return first_; }
  /// The offsets of unsettled messages.
  [[nodiscard]] std::set<Offset> open_offsets() const {
    std::set<Offset> offsets;
    for (const auto& [seq, slot] : aside_) offsets.insert(offsets.end(), slot.offset);
    for (const Slot& slot : open_) {
      if (!slot.settled) offsets.insert(offsets.end(), slot.offset);
    }
    return offsets;
  }
  /// The offset after the last message.
  [[nodiscard]] std::optional<Offset> taken_up_to() const noexcept {
    return last_taken_ ? std::optional(*last_taken_ + 1) : std::nullopt;
  }
  /// The number of the oldest unsettled message, if there is one.
  [[nodiscard]] std::optional<Seq> oldest() const noexcept {
    if (!aside_.empty()) return aside_.begin()->first;
    return open_.empty() ? std::nullopt : std::optional(base_);
  }
  /// The number of the oldest message that is not set aside. All before it are settled or set aside.
  [[nodiscard]] Seq base() const noexcept { return base_; }
  /// 1 more than the number of the newest message.
  [[nodiscard]] Seq end() const noexcept { return base_ + open_.size(); }
  /// The messages in memory: unsettled ones, and settled ones behind an unsettled one.
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
  std::map<Seq, Slot> aside_;  ///< unsettled, numbers below base_
  std::size_t settled_ = 0;    ///< of open_
  Seq base_ = 0;
  std::optional<Offset> first_;
  std::optional<Offset> position_;  ///< all below it are settled or set aside
  std::optional<Offset> passed_;    ///< the end of the gap after the last message
  std::optional<Offset> last_taken_;
};

}  // namespace turnstile::detail
