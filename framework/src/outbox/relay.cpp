#include "outbox/relay.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "support/failpoint.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

/// How often the lease is renewed during its time.
constexpr int kKeepsPerLease = 3;
/// The pause after a failure.
constexpr std::chrono::milliseconds kPause{500};
/// A due message may be in a shard that another relay is about to move.
constexpr std::chrono::milliseconds kShortestPause{20};

std::vector<ports::OutboxShard> all_shards() {
  std::vector<ports::OutboxShard> all(ports::kOutboxShards);
  std::iota(all.begin(), all.end(), ports::OutboxShard{0});
  return all;
}

}  // namespace

Relay::Relay(Settings settings, std::shared_ptr<ports::Outbox> outbox, OpenSender open_sender,
             std::shared_ptr<const RunLog> run_log)
    : settings_(std::move(settings)),
      outbox_(std::move(outbox)),
      open_sender_(std::move(open_sender)),
      run_log_(std::move(run_log)) {}

void Relay::start() {
  thread_ = std::thread([this] { run(); });
}

void Relay::stop(std::chrono::milliseconds grace) {
  if (!thread_.joinable()) return;
  {
    std::unique_lock lock(mutex_);
    finishing_ = true;
    wake_.notify_all();
    wake_.wait_for(lock, grace, [this] { return ended_; });
    stopping_ = true;
    if (sender_) sender_->cancel();
  }
  wake_.notify_all();
  thread_.join();
}

void Relay::ring() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(rung_, true)) return;
  }
  wake_.notify_all();
}

void Relay::ring_when_due(std::chrono::milliseconds after) {
  if (after >= settings_.look_asleep_every) return;  // it looks before that time
  const Time at = LeaseClock::now() + after;
  {
    const std::lock_guard lock(mutex_);
    if (at >= rung_due_at_) return;
    rung_due_at_ = at;
  }
  wake_.notify_all();
}

void Relay::run() {
  for (;;) {
    found_some_ = false;
    try {
      step(LeaseClock::now());
      told(true, "");
    } catch (const std::exception& e) {
      told(false, e.what());
    }
    wait();
    const std::lock_guard lock(mutex_);
    if (stopping_ || (finishing_ && !found_some_ && !rung_)) break;
  }
  fall_asleep();
  const std::lock_guard lock(mutex_);
  ended_ = true;
  wake_.notify_all();
}

void Relay::step(Time now) {
  bool rung = false;
  {
    const std::lock_guard lock(mutex_);
    rung = std::exchange(rung_, false);
    if (now >= rung_due_at_) {
      rung_due_at_ = Time::max();
      look_for_due_at_ = now;
    }
  }
  if (!awake_ && !wake_up(now, rung)) return;
  if (now >= keep_again_) {
    shards_ = outbox_->keep_shards(settings_.owner, settings_.lease);
    keep_again_ = now + settings_.lease / kKeepsPerLease;
  }
  if (!shards_.empty() && now >= look_for_due_at_) look_for_due(now);
  found_some_ = !shards_.empty() && send_some() > 0;
  if (found_some_) found_at_ = now;
  else if (now - found_at_ > settings_.asleep_after) fall_asleep();
}

/// It looks often while messages are due, because more may follow when these are settled. It does not look with each
/// batch of a busy outbox.
void Relay::look_for_due(Time now) {
  auto due = outbox_->release_due(shards_, settings_.batch);
  // What is due is of a shard of another relay.
  if (due.moved == 0 && due.next && due.next->count() <= 0) due.next.reset();
  next_due_ = due.next;
  if (due.moved == settings_.batch) due_pause_ = std::chrono::milliseconds(0);
  else if (due.moved > 0) due_pause_ = kShortestPause;
  else due_pause_ = std::max(2 * due_pause_, kShortestPause);
  due_pause_ = std::min(due_pause_, settings_.look_every);
  look_for_due_at_ = now + std::min(due_pause_, std::max(due.next.value_or(due_pause_), kShortestPause));
}

/// Wakes up if there is work: published here, left by another process, or due now.
bool Relay::wake_up(Time now, bool rung) {
  next_due_ = outbox_->release_due({}, 0).next;
  const bool due = next_due_ && next_due_->count() <= 0;
  if (!rung && !due && outbox_->waiting(all_shards(), 1, 1).empty()) return false;
  auto sender = open_sender_();
  const std::lock_guard lock(mutex_);
  if (stopping_) return false;
  sender_ = std::move(sender);
  found_at_ = now;
  keep_again_ = {};
  return awake_ = true;
}

void Relay::fall_asleep() {
  awake_ = false;
  try {
    if (!shards_.empty()) outbox_->leave_shards(settings_.owner);
  } catch (const std::exception&) {
    // Other processes can take the shards when the lease ends.
  }
  shards_.clear();
  const std::lock_guard lock(mutex_);
  sender_.reset();
}

/// Returns how many records it found that it had not sent yet.
std::size_t Relay::send_some() {
  auto records = outbox_->waiting(shards_, settings_.batch, settings_.batch_bytes);
  const auto first_sent =
      sent_.empty() ? records.end() : std::stable_partition(records.begin(), records.end(), [&](const auto& record) {
        return !sent_.contains(as_sent(record));
      });
  sent_.clear();
  for (auto record = first_sent; record != records.end(); ++record) sent_.insert(as_sent(*record));
  std::vector<const ports::OutboxRecord*> to_send, sent;
  std::vector<std::pair<const ports::OutboxRecord*, std::string>> refused;
  for (auto record = records.begin(); record != first_sent; ++record) {
    if (record->unreadable.empty()) to_send.push_back(&*record);
    else put_aside(*record, record->unreadable);
  }
  for (auto record = first_sent; record != records.end(); ++record) sent.push_back(&*record);
  if (!to_send.empty()) {
    auto fates = send(to_send);
    for (std::size_t i = 0; i < to_send.size(); ++i) {
      if (fates[i].kind == ports::BrokerSender::Fate::Kind::sent) sent.push_back(to_send[i]);
      if (fates[i].kind == ports::BrokerSender::Fate::Kind::refused)
        refused.emplace_back(to_send[i], std::move(fates[i].why));
    }
  }
  // First the sent records: they must not be sent again, even if a later step fails.
  if (!sent.empty()) remove(sent);
  for (const auto& [record, why] : refused) put_aside(*record, why);
  return static_cast<std::size_t>(first_sent - records.begin());
}

std::vector<ports::BrokerSender::Fate> Relay::send(const std::vector<const ports::OutboxRecord*>& records) {
  std::vector<OwnedMessage> messages;
  messages.reserve(records.size());
  for (const auto* record : records) messages.push_back(record->message);
  TURNSTILE_FAILPOINT("before-relay");
  auto fates = sender_->send(messages);
  TURNSTILE_FAILPOINT("after-relay");
  return fates;
}

void Relay::remove(std::span<const ports::OutboxRecord* const> sent) {
  try {
    outbox_->remove(sent);
  } catch (...) {
    for (const auto* record : sent) sent_.insert(as_sent(*record));
    throw;
  }
  for (const auto* record : sent)
    if (record->due_us) sent_.insert(as_sent(*record));
}

Relay::Sent Relay::as_sent(const ports::OutboxRecord& record) {
  const Message message(record.message);
  return {record.shard, record.id, record.due_us.value_or(0),
          std::string(message.header(ports::kMessageIdHeader).value_or(""))};
}

void Relay::put_aside(const ports::OutboxRecord& record, const std::string& why) {
  const auto number = outbox_->refuse(record, why);
  if (!number) return;
  run_log_->error(Code::outbox_record_refused, "outbox: record " + std::to_string(*number) + " for topic '" +
                                                   record.message.topic + "' cannot be sent, and is kept back: " + why +
                                                   " Then run: turnstile outbox retry " + std::to_string(*number));
}

void Relay::wait() {
  std::unique_lock lock(mutex_);
  if (well_ && found_some_) return;
  const Time now = LeaseClock::now();
  Time until = now + (!well_ ? kPause : awake_ ? settings_.look_every : settings_.look_asleep_every);
  if (well_ && next_due_) until = std::min(until, now + std::max(*next_due_, kShortestPause));
  if (well_ && awake_ && !shards_.empty()) until = std::min(until, std::max(look_for_due_at_, now));
  while (!finishing_ && !stopping_ && !(well_ && rung_)) {
    const Time end = well_ ? std::min(until, rung_due_at_) : until;
    const Time at = LeaseClock::now();
    if (at >= end) return;
    wake_.wait_for(lock, end - at);
  }
}

/// Logs a line for each change.
void Relay::told(bool well, const std::string& why) {
  if (std::exchange(well_, well) == well) return;
  if (well) run_log_->info("outbox: sending again");
  else run_log_->warn(Code::outbox_paused, "outbox: messages are sent late, or not at all; retrying: " + why);
}

}  // namespace turnstile::detail
