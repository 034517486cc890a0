#pragma once
// A batch's ids, each once, in order.

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "turnstile/ports/inbox.hpp"

namespace turnstile::postgres {

/// Indices of the first entry of each id, in the order of ids (hazard: insert-order).
inline void sort_distinct(std::span<const ports::InboxEntry> entries, std::vector<std::uint32_t>& order) {
  order.resize(entries.size());
  std::iota(order.begin(), order.end(), 0U);
  std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    const int compared = std::memcmp(entries[a].id.bytes.data(), entries[b].id.bytes.data(), 16);
    return compared != 0 ? compared < 0 : a < b;
  });
  order.erase(std::unique(order.begin(), order.end(),
                          [&](std::uint32_t a, std::uint32_t b) { return entries[a].id == entries[b].id; }),
              order.end());
}

}  // namespace turnstile::postgres
