#include "history.hpp"

#include <algorithm>
#include <set>

namespace turnstile::cli::dashboard {

namespace {

/// Records that are closer together are one moment.
constexpr std::int64_t kResolutionMs = 50;
constexpr std::size_t kMostMoments = 200'000;
constexpr std::size_t kMostLimits = 10'000;

std::string name_of(const TokenMember& member) {
  if (member.client.empty() && member.host.empty()) return "member " + std::to_string(member.id);
  return process_name(member.client, member.host, member.pid);
}

}  // namespace

void History::pass(std::int64_t time_ms, std::int64_t position) {
  if (moments_.size() >= 2 && time_ms - moments_[moments_.size() - 2].time_ms < kResolutionMs)
    moments_.back() = {time_ms, position};
  else moments_.push_back({time_ms, position});
  if (moments_.size() > kMostMoments) moments_.pop_front();
}

void History::change(const std::string& limiter, const TokenMember& member, std::int64_t held, std::int64_t time_ms) {
  names_[member.id] = name_of(member);
  Series& series = series_[limiter];
  series.changes.push_back({time_ms, member.id, held});
  if (held == 0) series.now.erase(member.id);
  else series.now[member.id] = held;
  if (++changes_ > most_) forget_oldest();
}

/// A tenth at once, so that it costs little for each change.
void History::forget_oldest() {
  std::vector<std::int64_t> times;
  for (const auto& [name, series] : series_) {
    for (const auto& each : series.changes) times.push_back(each.time_ms);
  }
  const auto keep_from = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 10);
  std::nth_element(times.begin(), keep_from, times.end());
  const std::int64_t from_ms = *keep_from;
  changes_ = 0;
  for (auto& [name, series] : series_) {
    while (!series.changes.empty() && series.changes.front().time_ms <= from_ms) {
      const Change& oldest = series.changes.front();
      if (oldest.held == 0) series.before.erase(oldest.member);
      else series.before[oldest.member] = oldest.held;
      series.changes.pop_front();
    }
    changes_ += series.changes.size();
  }
  while (moments_.size() > 1 && moments_.front().time_ms < from_ms) moments_.pop_front();
  std::set<std::uint64_t> used;
  for (const auto& [name, series] : series_) {
    for (const auto& [member, held] : series.before) used.insert(member);
    for (const auto& each : series.changes) used.insert(each.member);
  }
  std::erase_if(names_, [&](const auto& name) { return !used.contains(name.first); });
}

void History::set(const PermitsView& view, std::int64_t time_ms) {
  if (time_ms == 0) time_ms = last_ms();
  if (time_ms == 0) return;  // the next record has a time
  std::map<std::string, std::map<std::uint64_t, std::int64_t>> held;
  for (const auto& entry : view.limiters) {
    for (const auto& who : entry.holders) {
      const TokenMember member{.id = who.member, .client = who.client, .host = who.host, .pid = who.pid};
      if (who.held > 0) held[entry.limiter][who.member] = who.held;
      const auto known = series_.find(entry.limiter);
      const bool same = known != series_.end() && known->second.now.contains(who.member) &&
                        known->second.now.at(who.member) == who.held;
      if (who.held > 0 && !same) change(entry.limiter, member, who.held, time_ms);
    }
  }
  for (auto& [name, series] : series_) {
    const auto now = series.now;
    for (const auto& [member, count] : now) {
      if (held[name].contains(member)) continue;
      series.changes.push_back({time_ms, member, 0});
      series.now.erase(member);
      ++changes_;
    }
  }
  pass(time_ms, view.position);
  note_limits(view);
}

void History::add(const TokenRecord& record) {
  const std::int64_t time_ms = std::max(record.time_ms, last_ms());
  for (const auto& each : record.changes) change(each.limiter, each.member, each.after, time_ms);
  if (time_ms > 0) pass(time_ms, record.position);
}

void History::note_limits(const PermitsView& view) {
  for (const auto& entry : view.limiters) {
    auto& limits = series_[entry.limiter].limits;
    if (!limits.empty() && limits.back().limit == entry.limit) continue;
    limits.push_back({last_ms(), entry.limit});
    if (limits.size() > kMostLimits) limits.pop_front();
  }
}

std::vector<std::string> History::limiters() const {
  std::vector<std::string> names;
  for (const auto& [name, series] : series_) names.push_back(name);
  return names;
}

HistoryView History::view(const std::string& limiter, std::int64_t from_ms, std::int64_t to_ms,
                          std::size_t steps) const {
  HistoryView view{.first_ms = first_ms(), .last_ms = last_ms()};
  const auto found = series_.find(limiter);
  static const Series kNone;
  const Series& series = found == series_.end() ? kNone : found->second;
  std::map<std::uint64_t, std::int64_t> held = series.before;
  std::map<std::uint64_t, std::vector<std::int64_t>> of_member;
  std::map<std::uint64_t, std::int64_t> most;
  std::vector<std::uint64_t> order;
  auto change = series.changes.begin();
  auto moment = moments_.begin();
  auto limit = series.limits.begin();
  std::int64_t position = -1;
  std::optional<std::int64_t> in_effect;
  for (std::size_t step = 0; step < steps; ++step) {
    const std::int64_t end_ms =
        from_ms + static_cast<std::int64_t>(static_cast<double>(to_ms - from_ms) * static_cast<double>(step + 1) /
                                            static_cast<double>(steps));
    for (; change != series.changes.end() && change->time_ms <= end_ms; ++change) held[change->member] = change->held;
    for (; moment != moments_.end() && moment->time_ms <= end_ms; ++moment) position = moment->position;
    for (; limit != series.limits.end() && limit->time_ms <= end_ms; ++limit) in_effect = limit->limit;
    view.times_ms.push_back(end_ms);
    view.positions.push_back(position);
    view.limits.push_back(in_effect);
    for (const auto& [member, count] : held) {
      if (count == 0) continue;
      auto& counts = of_member[member];
      if (counts.empty()) {
        counts.resize(steps);
        order.push_back(member);
      }
      counts[step] = count;
      most[member] += count;
    }
  }
  std::vector<std::uint64_t> by_use = order;
  std::stable_sort(by_use.begin(), by_use.end(), [&](auto a, auto b) { return most[a] > most[b]; });
  if (by_use.size() > kMostProcesses) {
    view.others = static_cast<std::int64_t>(by_use.size() - kMostProcesses);
    by_use.resize(kMostProcesses);
  }
  for (const auto member : order) {
    if (std::find(by_use.begin(), by_use.end(), member) == by_use.end()) continue;
    const auto name = names_.find(member);
    view.processes.push_back(
        {name == names_.end() ? "member " + std::to_string(member) : name->second, std::move(of_member[member])});
  }
  return view;
}

}  // namespace turnstile::cli::dashboard
