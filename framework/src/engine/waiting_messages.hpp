#pragma once
// The waiting messages of a key, oldest first. Nearly all keys have one: a std::deque takes 600 bytes for it, which was
// a fifth of the memory of a consumer whose messages have no keys. Pure; not thread-safe.

#include <algorithm>
#include <cstddef>
#include <vector>

#include "delivery/work.hpp"

namespace turnstile::detail {

class WaitingMessages {
 public:
  [[nodiscard]] bool empty() const noexcept { return taken_ == all_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size() - taken_; }
  [[nodiscard]] Seq front() const noexcept { return all_[taken_]; }
  /// It is later than all others.
  void push_back(Seq seq) { all_.push_back(seq); }
  void pop_front() {
    ++taken_;
    if (2 * taken_ >= all_.size()) drop_taken();
  }
  /// At its place in the order.
  void insert(Seq seq) {
    if (taken_ > 0 && (empty() || seq < front())) all_[--taken_] = seq;
    else all_.insert(std::lower_bound(begin(), all_.end(), seq), seq);
  }
  void erase(Seq seq) {
    const auto at = std::lower_bound(begin(), all_.end(), seq);
    if (at != all_.end() && *at == seq) all_.erase(at);
  }

 private:
  [[nodiscard]] std::vector<Seq>::iterator begin() noexcept {
    return all_.begin() + static_cast<std::ptrdiff_t>(taken_);
  }
  void drop_taken() {
    all_.erase(all_.begin(), begin());
    taken_ = 0;
  }

  std::vector<Seq> all_;
  std::size_t taken_ = 0;  ///< at the beginning of all_
};

}  // namespace turnstile::detail
