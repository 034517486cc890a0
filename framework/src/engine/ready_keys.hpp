#pragma once
// The keys of a lane that may start, by the length of their backlog (log2). A long backlog bounds the time of the whole
// partition, so it goes first. Every eighth turn takes the shortest, so that no key starves. Before all of them go keys
// whose next message must run alone. Pure. Not thread-safe.

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <optional>
#include <string_view>

namespace turnstile::detail {

class ReadyKeys {
 public:
  using KeyHash = std::uint64_t;
  static KeyHash hash_of(std::string_view key) { return std::hash<std::string_view>{}(key); }

  [[nodiscard]] bool empty() const {
    return first_.empty() &&
           std::all_of(std::begin(queues_), std::end(queues_), [](const auto& queue) { return queue.empty(); });
  }
  /// `backlog`: the key's waiting messages, at least 1.
  void add(KeyHash key, std::size_t backlog) {
    const auto length = static_cast<std::size_t>(std::bit_width(backlog)) - 1;
    queues_[std::min(length, kClasses - 1)].push_back(key);
  }
  void add_first(KeyHash key) { first_.push_back(key); }
  void remove(KeyHash key) {
    std::erase(first_, key);
    for (auto& queue : queues_) std::erase(queue, key);
  }
  /// The key whose turn it is.
  std::optional<KeyHash> take() {
    if (!first_.empty()) {
      const KeyHash key = first_.front();
      first_.pop_front();
      return key;
    }
    const bool shortest_first = ++turn_ % 8 == 0;
    for (std::size_t i = 0; i < kClasses; ++i) {
      auto& queue = queues_[shortest_first ? i : kClasses - 1 - i];
      if (queue.empty()) continue;
      const KeyHash key = queue.front();
      queue.pop_front();
      return key;
    }
    return std::nullopt;
  }

 private:
  static constexpr std::size_t kClasses = 20;
  std::deque<KeyHash> queues_[kClasses];
  std::deque<KeyHash> first_;
  unsigned turn_ = 0;
};

}  // namespace turnstile::detail
