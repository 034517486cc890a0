#include "tokens/shares.hpp"

#include <algorithm>

namespace turnstile::tokens {

namespace {

Count seat_of(const Wish& wish) { return std::min(std::max<Count>(wish.least, 1), wish.wants); }

/// The share of a wish at `level`. `heaviest` levels are a permit for the heaviest wish, so no share grows by more than
/// 1 from a level to the next.
Count at_level(const Wish& wish, Count wanted, Count level, Count heaviest) {
  return std::max(wish.share, std::min(wanted, level * wish.weight / heaviest));
}

/// Raises all shares above 0, up to wanted(wish), as far as `left` allows. Subtracts the cost from `left`.
template <class Wanted>
void fill(Count& left, std::span<Wish> wishes, Wanted wanted) {
  Count had = 0, all = 0, most = 0, heaviest = 1;
  for (const Wish& wish : wishes) {
    if (wish.share == 0) continue;
    had += wish.share;
    all += std::max(wish.share, wanted(wish));
    most = std::max(most, wanted(wish));
    heaviest = std::max(heaviest, wish.weight);
  }
  if (all - had <= left) {
    for (Wish& wish : wishes) {
      if (wish.share > 0) wish.share = std::max(wish.share, wanted(wish));
    }
    left -= all - had;
    return;
  }
  const auto cost = [&](Count level) {
    Count sum = 0;
    for (const Wish& wish : wishes) {
      if (wish.share > 0) sum += at_level(wish, wanted(wish), level, heaviest) - wish.share;
    }
    return sum;
  };
  Count level = 0;  // the highest level that `left` can pay
  for (Count beyond = most * heaviest + 1; beyond - level > 1;) {
    const Count middle = level + (beyond - level) / 2;
    (cost(middle) <= left ? level : beyond) = middle;
  }
  left -= cost(level);
  for (Wish& wish : wishes) {
    if (wish.share == 0) continue;
    const Count next = at_level(wish, wanted(wish), level + 1, heaviest);
    wish.share = at_level(wish, wanted(wish), level, heaviest);
    const Count more = std::min(left, next - wish.share);
    wish.share += more;
    left -= more;
  }
}

}  // namespace

bool divide(Count capacity, std::span<Wish> wishes) {
  Count left = capacity;
  const auto seat = [&](bool urgent) {
    for (Wish& wish : wishes) {
      if ((wish.urgent > 0) != urgent || seat_of(wish) > left) continue;
      wish.share = seat_of(wish);
      left -= wish.share;
    }
  };
  for (Wish& wish : wishes) wish.share = 0;
  seat(true);
  seat(false);
  fill(left, wishes, [](const Wish& wish) { return std::min(wish.urgent, wish.wants); });
  fill(left, wishes, [](const Wish& wish) { return wish.wants; });
  return std::any_of(wishes.begin(), wishes.end(), [](const Wish& wish) { return wish.share < seat_of(wish); });
}

}  // namespace turnstile::tokens
