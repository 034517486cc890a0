#include "engine/status_reporter.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

/// The longest wait for Kafka. The end of the consumer may have to wait as long.
constexpr milliseconds kKafkaWait{1'000};
/// After a question to PostgreSQL it rests for this many times as long as the answer took, so that a table with
/// millions of rows is counted less often.
constexpr int kRoundRestFactor = 50;
/// Until the next question to a PostgreSQL that did not answer.
constexpr milliseconds kAskAgain{2'000};

}  // namespace

StatusReporter::StatusReporter(Settings settings, const StatusBoard& board, ports::BrokerConsumer& consumer)
    : settings_(std::move(settings)), board_(board), consumer_(&consumer), thread_([this] {
        step();
        return PeriodicThread::after(settings_.tell_every);
      }) {
  thread_.start();
}

void StatusReporter::revokes(bool lost) {
  if (lost) in_group_ = false;
  if (!stands_since_) stands_since_ = SteadyClock::now();
}

void StatusReporter::assigned(std::size_t partitions) {
  in_group_ = true;
  const auto now = SteadyClock::now();
  const auto since = std::exchange(stands_since_, std::nullopt).value_or(now);
  settings_.observers.tell(&Observer::on_rebalance,
                           RebalanceReport{.partitions = static_cast<std::int64_t>(partitions),
                                           .took = std::chrono::duration_cast<milliseconds>(now - since)});
}

void StatusReporter::add_to(Status& status) const {
  status.in_group = in_group_;
  status.threads.push_back({"polling", std::chrono::duration_cast<milliseconds>(SteadyClock::now() - polled_at_.load()),
                            settings_.longest_round});
  const std::lock_guard lock(mutex_);
  for (auto& partition : status.partitions) {
    const auto end = ends_.find(partition.at);
    if (end != ends_.end() && end->second.offsets) partition.end = end->second.offsets->last;
    if (!partition.behind && partition.lag() == 0) partition.behind = milliseconds(0);
  }
  if (coordinator_is_silent_)
    status.kafka_silent = std::chrono::duration_cast<milliseconds>(SteadyClock::now() - answered_at_);
  // Handlers notice an outage only if there are messages.
  if (store_is_silent_ && status.store_available) status.store_available = false;
  status.outbox = outbox_;
  status.claims = claims_;
}

void StatusReporter::step() {
  const bool wants_all = !settings_.observers.empty() || board_.wants_all();
  const auto now = steady_clock::now();
  if (!wants_all && now < ask_kafka_at_) return;
  Status status = board_.look();
  std::vector<TopicPartition> owned;
  for (const auto& partition : status.partitions) owned.push_back(partition.at);
  const bool asks_kafka = now >= ask_kafka_at_ || owned != asked_;
  const bool asks_store = wants_all && settings_.store && now >= ask_store_at_;
  if (asks_kafka) {
    ask_kafka(owned, wants_all);
    ask_kafka_at_ = steady_clock::now() + settings_.ask_kafka_every;
  }
  if (asks_store) {
    ask_store();
    const auto took = steady_clock::now() - now;
    ask_store_at_ = steady_clock::now() + (store_is_silent_ ? kAskAgain
                                                            : std::max<steady_clock::duration>(
                                                                  settings_.ask_store_every, kRoundRestFactor * took));
  }
  if (settings_.observers.empty()) return;
  if (asks_kafka || asks_store) status = board_.look();
  settings_.observers.tell(&Observer::on_status, status);
}

void StatusReporter::leave_kafka() {
  const std::lock_guard asking(asking_);
  consumer_ = nullptr;
}

void StatusReporter::ask_kafka(const std::vector<TopicPartition>& partitions, bool about_group) {
  asked_ = partitions;
  PartitionEnds ends;
  bool answered = true;
  {
    const std::lock_guard asking(asking_);
    if (consumer_ != nullptr) ends = ends_of(partitions);
    const bool none = !ends.empty() && std::none_of(ends.begin(), ends.end(), [](const auto& end) {
      return end.second.offsets && end.second.why_unknown.empty();
    });
    answered = consumer_ == nullptr || (!none && (!about_group || coordinator_answers()));
  }
  if (settings_.on_ends) settings_.on_ends(ends);
  const std::lock_guard lock(mutex_);
  coordinator_is_silent_ = !answered;
  if (answered) answered_at_ = SteadyClock::now();
  ends_ = std::move(ends);
}

/// While Kafka does not tell, the last known end stays: a lag that vanishes raises no alert.
PartitionEnds StatusReporter::ends_of(const std::vector<TopicPartition>& partitions) {
  if (partitions.empty()) return {};
  const auto answers = consumer_->ends(partitions, kKafkaWait);
  PartitionEnds ends;
  std::vector<TopicPartition> silent;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (!answers[i]) silent.push_back(partitions[i]);
    ends[partitions[i]].offsets = answers[i];
  }
  if (silent.empty()) return ends;
  auto why = consumer_->why_no_end(silent, kKafkaWait);
  for (std::size_t i = 0; i < silent.size(); ++i) {
    const auto before = ends_.find(silent[i]);
    if (before != ends_.end() && !why[i].empty()) ends[silent[i]].offsets = before->second.offsets;
    ends[silent[i]].why_unknown = std::move(why[i]);
  }
  return ends;
}

bool StatusReporter::coordinator_answers() const {
  if (settings_.asked_of_group.empty()) return true;
  try {
    consumer_->committed(settings_.asked_of_group, kKafkaWait);
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// If PostgreSQL does not answer, the numbers are unknown.
void StatusReporter::ask_store() {
  std::optional<ports::OutboxLag> outbox;
  std::optional<ports::ClaimCounts> claims;
  bool silent = false;
  try {
    outbox = settings_.store->outbox()->lag();
    if (settings_.counts_claims) claims = settings_.store->claims()->count({});
  } catch (const StoreUnavailable&) {
    silent = true;
  } catch (const Error&) {
  }
  const std::lock_guard lock(mutex_);
  store_is_silent_ = silent;
  outbox_ = outbox;
  claims_ = claims;
}

}  // namespace turnstile::detail
