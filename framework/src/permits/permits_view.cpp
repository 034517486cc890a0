#include "permits/permits_view.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <set>
#include <string>
#include <utility>

#include "tokens/apply.hpp"
#include "tokens/parts.hpp"

namespace turnstile {

namespace {

template <class Figure>
std::int64_t sum(const std::vector<PermitsView::Holder>& holders, Figure figure) {
  return std::accumulate(holders.begin(), holders.end(), std::int64_t{0},
                         [&](std::int64_t so_far, const auto& holder) { return so_far + figure(holder); });
}

}  // namespace

std::int64_t PermitsView::Entry::held() const {
  return sum(holders, [](const Holder& holder) { return holder.held; });
}

std::int64_t PermitsView::Entry::busy() const {
  return sum(holders, [](const Holder& holder) { return holder.busy; });
}

std::int64_t PermitsView::Entry::waiting() const {
  return sum(holders, [](const Holder& holder) {
    return holder.draining ? 0 : std::max<std::int64_t>(holder.wants - holder.held, 0);
  });
}

}  // namespace turnstile

namespace turnstile::detail {

namespace {

PermitsView::Holder holder_of(tokens::MemberId id, const tokens::MemberEntry& member, const tokens::Holding& holding,
                              std::chrono::milliseconds lease, tokens::Count reserved) {
  return {.member = id,
          .client = member.about.client,
          .host = member.about.host,
          .pid = member.about.pid,
          .held = static_cast<std::int64_t>(holding.held()),
          .busy = static_cast<std::int64_t>(holding.busy),
          .wants = static_cast<std::int64_t>(holding.wants),
          .share = static_cast<std::int64_t>(holding.share),
          .draining = holding.draining,
          .held_since = holding.held_since,
          .configured = static_cast<std::int64_t>(holding.limit),
          .strict = holding.strict,
          .heard_at = member.last,
          .lease = lease,
          .reserved = static_cast<std::int64_t>(reserved)};
}

}  // namespace

PermitsView view_of(const tokens::State& state) {
  PermitsView view;
  view.position = state.last;
  const std::set<tokens::MemberId> resting = tokens::resting(state);
  for (const auto& [name, limiter] : state.limiters) {
    auto& entry = view.limiters.emplace_back();
    entry.limiter = name;
    entry.part = state.part;
    entry.limit = static_cast<std::int64_t>(limiter.limit());
    entry.reserved = static_cast<std::int64_t>(limiter.reserved);
    entry.set_aside = static_cast<std::int64_t>(std::min(limiter.limit(), limiter.aside()));
    if (limiter.set) entry.set = static_cast<std::int64_t>(*limiter.set);
    for (const auto& [id, holding] : limiter.holdings) {
      if (holding.limit > 0) entry.configured.push_back(static_cast<std::int64_t>(holding.limit));
      const tokens::MemberEntry& member = state.members.at(id);
      const std::chrono::milliseconds lease{member.about.lease_ms};
      entry.holders.push_back(holder_of(id, member, holding, resting.contains(id) ? lease * tokens::kRestLeases : lease,
                                        state.reserved(name, id)));
    }
  }
  for (const auto& [at, set] : state.limit_history.changes) {
    auto& change = view.limit_changes.emplace_back();
    change.position = at;
    change.part = state.part;
    change.limiter = set.limiter;
    if (set.limit) change.limit = static_cast<std::int64_t>(*set.limit);
    change.by = set.by;
    change.at_ms = set.at_ms;
  }
  return view;
}

PartView part_view_of(const tokens::State& state) {
  return {.view = view_of(state), .part = state.part, .parts = state.parts, .closed = state.closed};
}

namespace {

using Entries = std::map<std::string, PermitsView::Entry>;

/// What an entry of the directory adds to what its home tells.
void add_of_directory(PermitsView::Entry entry, bool is_home_closed, Entries& limiters) {
  if (!is_home_closed) {
    std::erase_if(entry.holders, [](const auto& holder) { return holder.held == 0 && holder.reserved == 0; });
    if (entry.holders.empty() && entry.reserved == 0) return;
    entry.set.reset();
    entry.configured.clear();
    entry.limit = entry.set_aside = 0;
  }
  const auto [known, is_new] = limiters.try_emplace(entry.limiter, entry);
  if (is_new) return;
  PermitsView::Entry& whole = known->second;
  if (entry.set) {
    whole.set = entry.set;
    whole.limit = entry.limit;
  }
  whole.reserved += entry.reserved;
  std::move(entry.holders.begin(), entry.holders.end(), std::back_inserter(whole.holders));
}

}  // namespace

PermitsView merged(std::vector<PartView> parts) {
  if (parts.size() == 1 && parts.front().parts == 1) return std::move(parts.front().view);
  PermitsView all;
  Entries limiters;
  std::set<std::uint32_t> closed;
  for (auto at = parts.rbegin(); at != parts.rend(); ++at) {  // the homes come before the directory
    PermitsView& view = at->view;
    if (at->part > 0 && at->closed) closed.insert(at->part);
    all.position = view.position;
    for (auto& entry : view.limiters) {
      const bool is_home_closed = closed.contains(tokens::part_of(entry.limiter, at->parts));
      entry.moving = is_home_closed;
      if (at->part == 0 && at->parts > 1) add_of_directory(std::move(entry), is_home_closed, limiters);
      else limiters.try_emplace(entry.limiter, entry);
    }
    std::move(view.limit_changes.begin(), view.limit_changes.end(), std::back_inserter(all.limit_changes));
  }
  for (auto& [name, entry] : limiters) all.limiters.push_back(std::move(entry));
  std::stable_sort(all.limit_changes.begin(), all.limit_changes.end(),
                   [](const auto& a, const auto& b) { return a.at_ms < b.at_ms; });
  return all;
}

}  // namespace turnstile::detail
