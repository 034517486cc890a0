#pragma once
// A batch's ids, each once, in order.

#include <algorithm>
#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "turnstile/ports/inbox.hpp"

namespace turnstile::postgres {

/// The order of ids: `order` becomes 0 to `count` - 1, sorted by their ids, and equal ones by their places.
template <class IdAt>
void sort_by_id(std::size_t count, IdAt id_at, std::vector<std::uint32_t>& order) {
  struct Key {
    std::uint64_t begin;  // the first bytes of the id as a number, which decides nearly always
    std::uint32_t place;
  };
  std::vector<Key> keys(count);
  for (std::uint32_t place = 0; place < count; ++place) {
    std::uint64_t begin = 0;
    for (int i = 0; i < 8; ++i) begin = begin << 8 | id_at(place).bytes[static_cast<std::size_t>(i)];
    keys[place] = {begin, place};
  }
  std::sort(keys.begin(), keys.end(), [&](const Key& a, const Key& b) {
    if (a.begin != b.begin) return a.begin < b.begin;
    const auto compared = id_at(a.place) <=> id_at(b.place);
    return compared != 0 ? compared < 0 : a.place < b.place;
  });
  order.resize(count);
  std::transform(keys.begin(), keys.end(), order.begin(), [](const Key& key) { return key.place; });
}

/// Indices of the first entry of each id, in the order of ids (hazard: insert-order).
inline void sort_distinct(std::span<const ports::InboxEntry> entries, std::vector<std::uint32_t>& order) {
  sort_by_id(
      entries.size(), [&](std::uint32_t i) -> const MessageId& { return entries[i].id; }, order);
  order.erase(std::unique(order.begin(), order.end(),
                          [&](std::uint32_t a, std::uint32_t b) { return entries[a].id == entries[b].id; }),
              order.end());
}

/// The places of ids among those that were sent in this order, which is that of ids. Usually they come back in it, so the
/// next one is looked at first.
template <class IdAt>
class PlaceOfId {
 public:
  PlaceOfId(std::span<const std::uint32_t> order, IdAt id_at) : order_(order), next_(order.begin()), id_at_(id_at) {}
  /// `id` must be one of them.
  std::uint32_t operator()(const MessageId& id) {
    if (next_ == order_.end() || id_at_(*next_) != id) {
      next_ = std::lower_bound(order_.begin(), order_.end(), id,
                               [&](std::uint32_t place, const MessageId& sought) { return id_at_(place) < sought; });
    }
    return *next_++;
  }

 private:
  std::span<const std::uint32_t> order_;
  std::span<const std::uint32_t>::iterator next_;
  IdAt id_at_;
};

}  // namespace turnstile::postgres
