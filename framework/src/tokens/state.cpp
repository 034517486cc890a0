#include "tokens/state.hpp"

#include <algorithm>

#include "tokens/conditions.hpp"

namespace turnstile::tokens {

Count LimiterEntry::limit() const {
  if (set) return *set;
  Count lowest = 0;
  for (const auto& [id, holding] : holdings) {
    if (holding.limit > 0 && (lowest == 0 || holding.limit < lowest)) lowest = holding.limit;
  }
  return lowest;
}

Count LimiterEntry::held() const {
  Count sum = 0;
  for (const auto& [id, holding] : holdings) sum += holding.held();
  return sum;
}

Count LimiterEntry::aside() const {
  Count most = reserved;
  for (const auto& [id, holding] : holdings) most = std::max(most, holding.set_aside);
  return most;
}

Count LimiterEntry::shared() const {
  if (is_closed(*this)) return 0;
  const Count all = limit();
  return all - std::min(all, aside());
}

bool LimiterEntry::strict() const {
  return std::any_of(holdings.begin(), holdings.end(), [](const auto& h) { return h.second.strict; });
}

void LimitHistory::add(Position at, const LimitSet& set) {
  changes.push_back({at, set});
  changes.back().set.by.resize(std::min(set.by.size(), kLongestName));
  if (changes.size() > kRememberedLimitChanges) changes.erase(changes.begin());
}

const Holding* State::holding(std::string_view limiter, MemberId member) const {
  const auto entry = limiters.find(limiter);
  if (entry == limiters.end()) return nullptr;
  const auto found = entry->second.holdings.find(member);
  return found == entry->second.holdings.end() ? nullptr : &found->second;
}

Count State::held(std::string_view limiter, MemberId member) const {
  const Holding* found = holding(limiter, member);
  return found == nullptr ? 0 : found->held();
}

Count State::reserved(std::string_view limiter, MemberId member) const {
  const auto reserve = reserves.find(member);
  if (reserve == reserves.end()) return 0;
  const auto of = reserve->second.of.find(limiter);
  return of == reserve->second.of.end() ? 0 : of->second;
}

std::size_t State::most_limiters() const {
  std::size_t most = 0;
  for (const auto& [id, member] : members) most = std::max<std::size_t>(most, member.about.most_limiters);
  return most > 0 ? most : kDefaultLimiters;
}

}  // namespace turnstile::tokens
