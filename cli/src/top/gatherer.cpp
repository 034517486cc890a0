#include "gatherer.hpp"

#include <algorithm>
#include <exception>
#include <utility>

#include "turnstile/error.hpp"

namespace turnstile::cli::top {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kDatabaseInterval{5'000};
/// A database that answers slowly is asked less often: at most 1/20 of the time.
constexpr int kDatabaseRest = 19;
constexpr std::chrono::seconds kFindTopics{60};
constexpr milliseconds kAfterFailure{1'000};
constexpr std::size_t kMostSamples = 100;

}  // namespace

Gatherer::Gatherer(const Config& config, Options options, std::function<void()> on_news)
    : config_(config), options_(std::move(options)), on_news_(std::move(on_news)) {
  const auto brokers = config.kafka.find("bootstrap.servers");
  if (brokers != config.kafka.end() && !brokers->second.empty()) {
    start(&Gatherer::ask_kafka);
    start(&Gatherer::ask_token_log);
  } else {
    news_.kafka_source = news_.token_source = {.state = Source::State::off, .why = "no broker is named"};
  }
  if (config.postgres && !config.postgres->url.empty()) start(&Gatherer::ask_database);
  else news_.database_source = {.state = Source::State::off, .why = "no database is named"};
}

Gatherer::~Gatherer() {
  stopping_ = true;
  changed_.notify_all();
  for (auto& thread : threads_) thread.join();
}

void Gatherer::start(void (Gatherer::*ask)()) {
  {
    const std::lock_guard lock(mutex_);
    ++running_;
  }
  threads_.emplace_back([this, ask] {
    (this->*ask)();
    const std::lock_guard lock(mutex_);
    --running_;
    changed_.notify_all();
  });
}

Moment Gatherer::now() const { return std::chrono::duration_cast<Moment>(steady_clock::now() - began_); }

Gatherer::News Gatherer::take() {
  const std::lock_guard lock(mutex_);
  News now = news_;
  news_.kafka.clear();
  news_.result.reset();
  return now;
}

void Gatherer::change(LimitChange change) {
  const std::lock_guard lock(mutex_);
  wanted_ = std::move(change);
  changed_.notify_all();
}

bool Gatherer::stop(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, timeout, [this] { return running_ == 0; });
}

void Gatherer::tell(Source& source, Source::State state, const std::string& why) {
  const std::lock_guard lock(mutex_);
  source.state = state;
  source.why = why;
  if (state == Source::State::ok) source.answered = now();
}

void Gatherer::tell_progress(Source& source, const std::string& what) {
  const std::lock_guard lock(mutex_);
  // After a failure, the same first steps succeed again and again.
  if (source.state != Source::State::asking) return;
  source.moved = now();
  source.why = what;
}

milliseconds Gatherer::look_once(Source& source, const std::function<milliseconds()>& look) {
  try {
    const milliseconds rest = look();
    tell(source, Source::State::ok, "");
    return rest;
  } catch (const NothingThere& nothing) {
    tell(source, Source::State::off, nothing.what());
  } catch (const ConfigError& error) {
    tell(source, Source::State::unavailable, error.problems.empty() ? error.what() : error.problems.front());
  } catch (const std::exception& error) {
    tell(source, Source::State::unavailable, error.what());
  }
  return kAfterFailure;
}

void Gatherer::repeat(Source& source, const std::function<milliseconds()>& look) {
  const bool changes_limits = &source == &news_.token_source;
  while (!stopping()) {
    const milliseconds rest = look_once(source, look);
    on_news_();
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, rest, [&] { return stopping() || (changes_limits && wanted_); });
  }
}

void Gatherer::ask_kafka() {
  auto named = options_.topics;
  if (named.empty()) {
    for (const auto& [name, settings] : config_.topics) named.push_back(name);
  }
  std::optional<KafkaSource> source;
  repeat(news_.kafka_source, [&] {
    const auto began = steady_clock::now();
    if (!source)
      source.emplace(config_, named, [this](const std::string& what) { tell_progress(news_.kafka_source, what); });
    if (options_.topics.empty()) {
      const std::lock_guard lock(mutex_);
      source->also(found_topics_);
    }
    auto sample = source->look();
    sample.at = now();
    {
      const std::lock_guard lock(mutex_);
      if (news_.kafka.size() == kMostSamples) news_.kafka.erase(news_.kafka.begin());
      news_.kafka.push_back(std::move(sample));
    }
    const auto took = std::chrono::ceil<milliseconds>(steady_clock::now() - began);
    return std::max(options_.interval - took, options_.interval / 10);
  });
}

void Gatherer::ask_token_log() {
  tokens_.emplace(config_, options_.log);
  repeat(news_.token_source, [&] {
    make_change();
    auto sample = tokens_->look([this] { return stopping(); });
    const std::lock_guard lock(mutex_);
    news_.tokens = std::move(sample);
    return options_.interval;
  });
  tokens_.reset();
}

void Gatherer::make_change() {
  std::optional<LimitChange> wanted;
  {
    const std::lock_guard lock(mutex_);
    wanted = std::exchange(wanted_, std::nullopt);
  }
  if (!wanted) return;
  std::string result;
  try {
    result = tokens_->change(*wanted);
  } catch (const std::exception& error) {
    result = "the limit was not changed: " + std::string(error.what());
  }
  const std::lock_guard lock(mutex_);
  news_.result = std::move(result);
}

void Gatherer::ask_database() {
  PostgresSettings settings = *config_.postgres;
  settings.connections = 1;
  std::optional<DatabaseSource> source;
  steady_clock::time_point find_again{};
  repeat(news_.database_source, [&] {
    const auto began = steady_clock::now();
    if (!source) source.emplace(settings);
    auto sample = source->look();
    std::optional<std::vector<std::string>> topics;
    if (began >= find_again) {
      topics = source->topics();
      find_again = began + kFindTopics;
    }
    const auto took = std::chrono::ceil<milliseconds>(steady_clock::now() - began);
    const std::lock_guard lock(mutex_);
    news_.database = std::move(sample);
    if (topics) found_topics_ = std::move(*topics);
    return std::max(kDatabaseInterval, took * kDatabaseRest);
  });
}

}  // namespace turnstile::cli::top
