#include "model.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "turnstile/text.hpp"

namespace turnstile::cli::top {

namespace {

LimiterView view_of(const PermitsView::Entry& entry) {
  LimiterView view{.limiter = entry.limiter,
                   .limit = entry.limit,
                   .set = entry.set.has_value(),
                   .held = entry.held(),
                   .in_use = entry.busy(),
                   .waiting = entry.waiting()};
  for (const auto& who : entry.holders) {
    if (who.held == 0 && who.wants == 0) continue;
    view.processes.push_back({.client = who.client,
                              .host = who.host,
                              .pid = who.pid,
                              .held = who.held,
                              .in_use = who.busy,
                              .waiting = who.draining ? 0 : std::max<std::int64_t>(who.wants - who.held, 0),
                              .draining = who.draining});
  }
  std::stable_sort(view.processes.begin(), view.processes.end(), [](const auto& a, const auto& b) {
    return std::tuple(a.in_use, a.held, a.waiting) > std::tuple(b.in_use, b.held, b.waiting);
  });
  return view;
}

std::int64_t dead_of(const DatabaseSample& facts, const std::string& group, const std::string& topic) {
  std::int64_t count = 0;
  for (const auto& dead : facts.dead) count += dead.group == group && dead.topic == topic ? dead.count : 0;
  return count;
}

/// Of an operator, or of the group's circuit breaker.
bool applies(const ports::PausedPart& part, const std::string& group) {
  return part.breaker_of.empty() || part.breaker_of == group;
}

void add_pauses(Model& model, const std::vector<ports::Pause>& pauses) {
  for (const auto& [part, by, why, left, since, until] : pauses) {
    if (!applies(part, model.group)) continue;
    for (auto& topic : model.topics) {
      if (topic.state.topic != part.topic) continue;
      if (part.partition || part.key) ++topic.paused_parts;
      else topic.paused = true;
    }
    for (auto& stall : model.stalls) {
      if (stall.at.topic == part.topic && !part.key &&
          part.partition.value_or(stall.at.partition) == stall.at.partition)
        stall.paused_by = by;
    }
  }
}

/// Stalled partitions before lag: a large lag that shrinks needs nobody.
auto trouble(const TopicView& topic) {
  return std::tuple(!topic.state.exists, topic.state.stalled, topic.state.lag.value_or(-1));
}

}  // namespace

const char* to_text(Sort sort) {
  switch (sort) {
    case Sort::lag: return "lag";
    case Sort::rate: return "rate";
    case Sort::name: return "name";
  }
  return "";
}

Sort next(Sort sort) { return sort == Sort::lag ? Sort::rate : sort == Sort::rate ? Sort::name : Sort::lag; }

std::string ProcessView::name() const {
  return client.empty() && host.empty() ? "a process that has not reported its name" : process_name(client, host, pid);
}

std::string LimiterView::why_stopped() const {
  if (limit == 0) return "paused";
  if (held <= limit) return "";
  return fmt::format("{} held, above its limit of {}", text::number(held), text::number(limit));
}

std::vector<const LimiterView*> Model::stopped() const {
  std::vector<const LimiterView*> found;
  for (const auto& limiter : limiters) {
    if (limiter.waiting > 0 && !limiter.why_stopped().empty()) found.push_back(&limiter);
  }
  return found;
}

Model make_model(const Progress& progress, std::chrono::milliseconds stall_after, std::string group,
                 const std::optional<TokenSample>& tokens, const std::optional<DatabaseSample>& facts) {
  Model model;
  model.group = std::move(group);
  for (auto& state : progress.topics(stall_after)) {
    auto& topic = model.topics.emplace_back(TopicView{.state = std::move(state)});
    if (facts) topic.dead = dead_of(*facts, model.group, topic.state.topic);
  }
  sort(model.topics, Sort::name);
  model.stalls = progress.stalls(stall_after);
  if (facts) add_pauses(model, facts->pauses);
  if (tokens) {
    model.token_log = tokens->log;
    model.position = tokens->permits.position;
    for (const auto& entry : tokens->permits.limiters) model.limiters.push_back(view_of(entry));
    sort(model.limiters, Sort::name);
  }
  model.facts = facts;
  return model;
}

void sort(std::vector<TopicView>& topics, Sort by) {
  std::stable_sort(topics.begin(), topics.end(),
                   [](const auto& a, const auto& b) { return a.state.topic < b.state.topic; });
  if (by == Sort::lag) {
    std::stable_sort(topics.begin(), topics.end(),
                     [](const auto& a, const auto& b) { return a.state.lag.value_or(-1) > b.state.lag.value_or(-1); });
  } else if (by == Sort::rate) {
    std::stable_sort(topics.begin(), topics.end(), [](const auto& a, const auto& b) {
      return a.state.rate.value_or(-1) > b.state.rate.value_or(-1);
    });
  }
}

void sort(std::vector<LimiterView>& limiters, Sort by) {
  std::stable_sort(limiters.begin(), limiters.end(),
                   [](const auto& a, const auto& b) { return a.limiter < b.limiter; });
  if (by == Sort::name) return;
  std::stable_sort(limiters.begin(), limiters.end(), [by](const auto& a, const auto& b) {
    return by == Sort::lag ? std::pair(a.waiting, a.in_use) > std::pair(b.waiting, b.in_use)
                           : std::pair(a.in_use, a.waiting) > std::pair(b.in_use, b.waiting);
  });
}

std::size_t keep_worst(std::vector<TopicView>& topics, std::size_t most, Sort by) {
  if (topics.size() <= most) return 0;
  const std::size_t left_out = topics.size() - most;
  if (by == Sort::name) {
    std::stable_sort(topics.begin(), topics.end(),
                     [](const auto& a, const auto& b) { return trouble(a) > trouble(b); });
  }
  topics.resize(most);
  sort(topics, by);
  return left_out;
}

}  // namespace turnstile::cli::top
