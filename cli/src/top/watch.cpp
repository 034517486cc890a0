#include "watch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <utility>

namespace turnstile::cli::top {

namespace {

using std::chrono::milliseconds;

/// A single look needs two samples that are this far apart, for a rate: the default of consumer.commit_interval is 1 s.
constexpr milliseconds kWatch{2'000};
/// How long a single look waits for a source that makes no progress.
constexpr milliseconds kWatchPatience{10'000};
/// How long the end waits for requests that no server answers.
constexpr milliseconds kStop{500};

}  // namespace

Microseconds utc() { return std::chrono::floor<std::chrono::microseconds>(std::chrono::system_clock::now()); }

Watch::Watch(const Config& config, const Options& options, std::function<void()> on_news)
    : group_(config.group()),
      stall_after_(options.stall_after),
      gatherer_(config, {.topics = options.topics, .log = options.log}, std::move(on_news)) {}

bool Watch::refresh() {
  auto news = gatherer_.take();
  for (const auto& sample : news.kafka) {
    progress_.add(sample);
    ++samples_;
    if (samples_ == 1) first_ = sample.at;
    last_ = sample.at;
  }
  const bool fresh = !news.kafka.empty();
  if (news.result) result_ = std::move(news.result);
  news_ = std::move(news);
  return fresh;
}

Model Watch::model() const {
  auto model = make_model(progress_, stall_after_, group_, news_.tokens, news_.database);
  model.now = gatherer_.now();
  model.time = when(utc()).substr(11);
  model.kafka = news_.kafka_source;
  model.tokens = news_.token_source;
  model.database = news_.database_source;
  model.topics_known = samples_ > 0;
  return model;
}

bool Watch::knows_enough() const {
  using State = Source::State;
  const auto is_late = [&](const Source& source) { return gatherer_.now() - source.moved >= kWatchPatience; };
  for (const auto* source : {&news_.kafka_source, &news_.token_source, &news_.database_source}) {
    if (source->state == State::asking && !is_late(*source)) return false;
  }
  if (news_.kafka_source.state != State::ok)
    return is_late(news_.kafka_source) || news_.kafka_source.state == State::off;
  const auto watched = last_ - std::max(first_, progress_.watched_since());
  return watched >= kWatch && (watched >= stall_after_ || !progress_.any_standing());
}

void Watch::give_up() {
  for (auto* source : {&news_.kafka_source, &news_.token_source, &news_.database_source}) {
    if (source->state != Source::State::asking) continue;
    source->state = Source::State::unavailable;
    source->why =
        fmt::format("no answer for {}{}", duration(kWatchPatience), source->why.empty() ? "" : "; " + source->why);
  }
}

bool Watch::any_unavailable() const {
  using State = Source::State;
  for (const auto* source : {&news_.kafka_source, &news_.token_source, &news_.database_source}) {
    if (source->state == State::asking || source->state == State::unavailable) return true;
  }
  return false;
}

std::optional<std::string> Watch::take_result() { return std::exchange(result_, std::nullopt); }

void Watch::end(int exit) {
  if (gatherer_.stop(kStop)) return;
  std::fflush(nullptr);
  std::_Exit(exit);
}

}  // namespace turnstile::cli::top
