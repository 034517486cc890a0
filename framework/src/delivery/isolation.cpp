#include "delivery/isolation.hpp"

#include <algorithm>
#include <utility>

namespace turnstile::detail {

namespace {

/// How often items are split at known culprits. After that, each of them runs by itself.
constexpr int kMostSplits = 2;

/// Items that run together. `splits`: how often they were split at a known culprit.
struct Piece {
  Items items;
  int splits = 0;
};

/// Splits the items that failed together. An item runs again because of others only a few times: as often as the items
/// can be halved, or kMostSplits times if the culprits are known.
void push_parts(std::vector<Piece>& stack, const Piece& piece, const Failure& failure) {
  const bool is_known = failure.culprit != nullptr;
  std::vector<Items> parts;
  if (is_known && piece.splits == kMostSplits) {
    for (UnitItem* const item : piece.items) parts.push_back({item});
  } else {
    parts = split(piece.items, failure.culprit);
  }
  for (auto part = parts.rbegin(); part != parts.rend(); ++part)
    stack.push_back({std::move(*part), piece.splits + (is_known ? 1 : 0)});
}

}  // namespace

std::vector<Items> split(const Items& items, const UnitItem* culprit) {
  const auto at = std::find(items.begin(), items.end(), culprit);
  if (at != items.end()) return {Items(items.begin(), at), {*at}, Items(at + 1, items.end())};
  const auto middle = items.begin() + static_cast<std::ptrdiff_t>(items.size() / 2);
  return {Items(items.begin(), middle), Items(middle, items.end())};
}

void run_isolating(Unit& unit, Verdicts& verdicts, std::vector<Items> parts, const Attempt& attempt) {
  std::vector<Piece> stack;
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) stack.push_back({std::move(*part)});
  while (!stack.empty()) {
    Piece piece = std::move(stack.back());
    stack.pop_back();
    unit.remove_blocked(piece.items);
    if (piece.items.empty()) continue;
    if (unit.is_over()) return;
    const std::optional<Failure> failure = attempt(piece.items);
    if (!failure) continue;
    switch (failure->kind) {
      case Failure::Kind::failed:
        if (failure->caught) return verdicts.put_back(piece.items);
        if (piece.items.size() == 1) {
          verdicts.failed(*piece.items.front(), *failure);
        } else {
          if (failure->handled > 0) unit.result().counts.rerun += static_cast<std::int64_t>(failure->handled) - 1;
          push_parts(stack, piece, *failure);
        }
        break;
      case Failure::Kind::busy: verdicts.again_soon(piece.items, failure->why, failure->busy_tries); break;
      case Failure::Kind::cancelled: return;
      case Failure::Kind::broken:
        return unit.end(UnitResult::End::broken, unit.describe(piece.items) + ": " + failure->why);
      case Failure::Kind::unavailable: return unit.end(UnitResult::End::store_unavailable, failure->why);
      case Failure::Kind::fenced: return unit.end(UnitResult::End::fenced, failure->why);
    }
  }
}

}  // namespace turnstile::detail
