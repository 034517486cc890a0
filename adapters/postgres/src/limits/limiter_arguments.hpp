#pragma once
// The arguments of the limiters' statements.

#include <chrono>
#include <cstdint>
#include <optional>
#include <vector>

#include "limits/limiter_book.hpp"
#include "wire/encode.hpp"

namespace turnstile::postgres {

inline std::int64_t micros(std::chrono::milliseconds time) { return std::chrono::microseconds(time).count(); }

/// Adds the numbers of the slots, then their generations.
inline void add_slots(ArgumentBlock& to, const std::vector<Slot>& slots) {
  add_int8_array(to, slots.size(), [&](std::size_t i) { return std::optional(slots[i].number); });
  add_int8_array(to, slots.size(), [&](std::size_t i) { return std::optional(slots[i].generation); });
}

/// Slots of several limiters, as three arrays.
struct Holdings {
  std::vector<std::int64_t> limiters;
  std::vector<Slot> slots;
  void add(std::int64_t limiter, const std::vector<Slot>& more) {
    limiters.insert(limiters.end(), more.size(), limiter);
    slots.insert(slots.end(), more.begin(), more.end());
  }
  void write(ArgumentBlock& to) const {
    add_int8_array(to, limiters.size(), [&](std::size_t i) { return std::optional(limiters[i]); });
    add_slots(to, slots);
  }
};

}  // namespace turnstile::postgres
