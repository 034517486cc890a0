#include "sender.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "hand_over.hpp"
#include "topics.hpp"

namespace turnstile::kafka {
namespace {

constexpr int kPollMs = 100;
/// The space that a batch needs beside its records: the request with the names of client and topic.
constexpr std::size_t kBatchOverhead = 2'048;
/// The most that lengths, times and flags of a record or a header need in a batch.
constexpr std::size_t kRecordOverhead = 64, kHeaderOverhead = 16;

// linger.ms: librdkafka sends when flush() is called, and not before. 900,000 is its largest value.
// batch.*: message.max.bytes alone limits a batch, so that batch_bytes() is right (hazard: refused-batch).
Settings of_sender(Settings settings) {
  for (const char* alias : {"message.timeout.ms", "queue.buffering.max.ms"}) settings.erase(alias);
  settings["delivery.timeout.ms"] = "0";
  settings["linger.ms"] = "900000";
  settings["batch.num.messages"] = "1000000";
  settings["batch.size"] = "2147483647";
  return settings;
}

/// Records that need no more space than this are one batch, if they are of one partition.
std::size_t batch_bytes(const Client& client) {
  std::array<char, 32> value{};
  auto size = value.size();
  rd_kafka_conf_get(rd_kafka_conf(client.handle()), "message.max.bytes", value.data(), &size);
  const std::size_t most = std::strtoul(value.data(), nullptr, 10);
  return most > kBatchOverhead ? most - kBatchOverhead : 0;
}

/// The largest space that librdkafka may need for the record in a batch.
std::size_t bytes_of(const OwnedMessage& record) {
  std::size_t bytes = kRecordOverhead + (record.key ? record.key->size() : 0);
  if (record.payload) bytes += record.payload->size();
  for (const auto& [name, value] : record.headers) bytes += kHeaderOverhead + name.size() + (value ? value->size() : 0);
  return bytes;
}

/// The record or its topic is the problem: every retry fails in the same way until an operator corrects it.
bool never_taken(rd_kafka_resp_err_t code) {
  switch (code) {
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
    case RD_KAFKA_RESP_ERR_RECORD_LIST_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_POLICY_VIOLATION:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR__INVALID_ARG: return true;
    default: return false;
  }
}

/// Topic and key: the order of records that differ in it is not promised. Without a key the partition stands for it.
using Sequence = std::tuple<std::string_view, std::string_view, std::int32_t>;

Sequence sequence_of(const OwnedMessage& record) {
  if (record.key) return {record.topic, *record.key, -1};
  return {record.topic, {}, record.partition};
}

std::set<std::string> topics_of(std::span<const OwnedMessage> records) {
  std::set<std::string> topics;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i == 0 || records[i].topic != records[i - 1].topic) topics.insert(records[i].topic);
  }
  return topics;
}

}  // namespace

KafkaSender::KafkaSender(Settings settings, std::shared_ptr<spdlog::logger> logger)
    : settings_(of_sender(std::move(settings))), logger_(std::move(logger)) {
  reopen();
}

KafkaSender::~KafkaSender() { client_->forget_events(); }

void KafkaSender::reopen() {
  auto client = Client::open(Role::producer, settings_, logger_, this);
  batch_bytes_ = batch_bytes(*client);
  known_topics_.clear();
  const std::lock_guard lock(mutex_);
  if (client_) client_->forget_events();
  client_ = std::move(client);
}

bool KafkaSender::is_broken() const {
  return rd_kafka_fatal_error(client_->handle(), nullptr, 0) != RD_KAFKA_RESP_ERR_NO_ERROR;
}

std::vector<ports::BrokerSender::Fate> KafkaSender::send(std::span<const OwnedMessage> records) {
  if (is_broken()) reopen();  // librdkafka has given up the old producer (hazard: producer-errors)
  records_ = records;
  fates_.assign(records.size(), Fate{});
  asked_about_.clear();
  owed_ = 0;
  ask_before_first_records(*client_, topics_of(records));
  const auto [first, others] = split_off_first_records();
  if (deliver(first)) {
    for (const std::size_t i : first) {
      // A record that is refused may have left librdkafka without the topic's partitions.
      if (fates_[i].kind == Fate::Kind::sent) known_topics_.insert(records[i].topic);
      else if (ports::is_topic_name(records[i].topic)) (void)look_again(*client_, records[i].topic);
    }
    (void)deliver(others);
  }
  bool unknown = false;
  for (Fate& fate : fates_) {
    if (unknown && fate.kind != Fate::Kind::unknown) fate = Fate{};
    unknown = unknown || fate.kind == Fate::Kind::unknown;
  }
  return std::move(fates_);
}

/// The first record of each topic that this producer has not used yet, and all other records. While librdkafka does
/// not know a topic's partitions, the topic's records do not reach them together, and may become several batches.
std::pair<std::vector<std::size_t>, std::vector<std::size_t>> KafkaSender::split_off_first_records() const {
  std::vector<std::size_t> first, others;
  std::set<std::string_view> met;
  others.reserve(records_.size());
  for (std::size_t i = 0; i < records_.size(); ++i) {
    const std::string& topic = records_[i].topic;
    const bool is_repeated = i > 0 && topic == records_[i - 1].topic;
    const bool is_first = !is_repeated && !known_topics_.contains(topic) && met.insert(topic).second;
    (is_first ? first : others).push_back(i);
  }
  return {std::move(first), std::move(others)};
}

/// Gives each of these records its fate. Records of one key are in one batch, or the later ones are sent when each of the
/// earlier ones has its fate: a broker that refuses a batch may accept the next (hazard: refused-batch).
/// The records of a refused batch are sent again in halves, until those that the broker really refuses are alone.
/// Returns false once a fate is unknown: no later record may be sent.
bool KafkaSender::deliver(std::span<const std::size_t> which) {
  while (!which.empty()) {
    refused_.clear();
    const auto some = which.first(hand_over_some(which));
    wait_for_reports();
    const auto is_unknown = [this](std::size_t i) { return fates_[i].kind == Fate::Kind::unknown; };
    if (some.empty() || std::any_of(some.begin(), some.end(), is_unknown)) return false;
    if (refused_.size() > 1) {
      std::vector<std::size_t> again = std::exchange(refused_, {});
      std::sort(again.begin(), again.end());
      for (const std::size_t i : again) fates_[i] = Fate{};
      const std::span<const std::size_t> all(again);
      if (!deliver(all.first(all.size() / 2)) || !deliver(all.subspan(all.size() / 2))) return false;
    }
    which = which.subspan(some.size());
  }
  return true;
}

/// Hands over records that fit in one batch, which are the first batch of each partition. Behind them it hands over
/// records whose key is not among the records so far. Returns how many of `which` that are, with those that librdkafka
/// refuses at once. 0: cancelled.
std::size_t KafkaSender::hand_over_some(std::span<const std::size_t> which) {
  std::size_t bytes = 0, count = 0;
  std::set<Sequence> met;
  while (count < which.size() && !cancelled_) {
    const std::size_t i = which[count];
    const OwnedMessage& record = records_[i];
    if (!ports::is_topic_name(record.topic)) {  // librdkafka would call the topic unknown
      fates_[i] = fate_of(RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, record.topic);
      ++count;
      continue;
    }
    const std::size_t its_bytes = bytes_of(record);
    if (owed_ > 0 && bytes + its_bytes > batch_bytes_) {
      if (met.empty()) {
        for (const std::size_t earlier : which.first(count)) met.insert(sequence_of(records_[earlier]));
      }
      if (!met.insert(sequence_of(record)).second) break;
    }
    const auto refused = hand_over(client_->handle(), record, &fates_[i], 0);
    const auto code = refused ? rd_kafka_error_code(refused.get()) : RD_KAFKA_RESP_ERR_NO_ERROR;
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
      if (owed_ > 0) break;
      rd_kafka_poll(client_->handle(), kPollMs);
      continue;
    }
    if (is_remembered(code) && asked_about_.insert(record.topic).second) {
      if (look_again(*client_, record.topic)) continue;
      return count + 1;  // its fate stays unknown
    }
    ++count;
    if (!code) {
      ++owed_;
      bytes += its_bytes;
      continue;
    }
    fates_[i] = fate_of(code, record.topic);
    if (fates_[i].kind == Fate::Kind::unknown) break;  // later records must not overtake it
  }
  return count;
}

void KafkaSender::wait_for_reports() {
  while (owed_ > 0) {
    rd_kafka_flush(client_->handle(), kPollMs);
    // Also cancels records that were handed over after cancel(). A broken producer may keep records without a report.
    if (cancelled_ || is_broken()) purge();
  }
}

void KafkaSender::on_delivered(const rd_kafka_message_t& record) noexcept try {
  auto* fate = static_cast<Fate*>(record._private);
  const auto i = static_cast<std::size_t>(fate - fates_.data());
  --owed_;
  Fate its = fate_of(record.err, records_[i].topic);
  if (its.kind == Fate::Kind::refused) {
    // An earlier request that was not answered may have stored it (hazard: refused-repeat).
    if (rd_kafka_message_status(&record) != RD_KAFKA_MSG_STATUS_NOT_PERSISTED)
      its = {Fate::Kind::unknown,
             its.why + " The broker did not answer an earlier request, and may have stored the record."};
    else refused_.push_back(i);
  }
  *fate = std::move(its);
} catch (...) {  // no memory for the text: the fate stays unknown
}

ports::BrokerSender::Fate KafkaSender::fate_of(rd_kafka_resp_err_t code, const std::string& topic) const {
  if (!code) return {Fate::Kind::sent, {}};
  if (!never_taken(code)) return {};
  return {Fate::Kind::refused, explain(code, "", client_->where(topic))};
}

void KafkaSender::cancel() noexcept {
  cancelled_ = true;
  purge();
}

void KafkaSender::purge() noexcept {
  const std::lock_guard lock(mutex_);
  rd_kafka_purge(client_->handle(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

}  // namespace turnstile::kafka
