#include "sender.hpp"

#include <set>

#include "hand_over.hpp"
#include "topics.hpp"

namespace turnstile::kafka {
namespace {

constexpr int kPollMs = 100;

Settings without_time_limit(Settings settings) {
  settings.erase("message.timeout.ms");
  settings["delivery.timeout.ms"] = "0";
  return settings;
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

std::set<std::string> topics_of(std::span<const OwnedMessage> records) {
  std::set<std::string> topics;
  for (std::size_t i = 0; i < records.size(); ++i) {
    if (i == 0 || records[i].topic != records[i - 1].topic) topics.insert(records[i].topic);
  }
  return topics;
}

}  // namespace

KafkaSender::KafkaSender(Settings settings, std::shared_ptr<spdlog::logger> logger)
    : settings_(without_time_limit(std::move(settings))), logger_(std::move(logger)) {
  reopen();
}

KafkaSender::~KafkaSender() { client_->forget_events(); }

void KafkaSender::reopen() {
  auto client = Client::open(Role::producer, settings_, logger_, this);
  const std::lock_guard lock(mutex_);
  if (client_) client_->forget_events();
  client_ = std::move(client);
}

std::vector<ports::BrokerSender::Fate> KafkaSender::send(std::span<const OwnedMessage> records) {
  // librdkafka has given up the old producer (hazard: producer-errors).
  if (rd_kafka_fatal_error(client_->handle(), nullptr, 0) != RD_KAFKA_RESP_ERR_NO_ERROR) reopen();
  records_ = records;
  fates_.assign(records.size(), Fate{});
  owed_ = 0;
  std::set<std::string> asked_about;
  ask_before_first_records(*client_, topics_of(records));
  for (std::size_t i = 0; i < records.size() && !cancelled_;) {
    if (!ports::is_topic_name(records[i].topic)) {  // librdkafka would call the topic unknown
      fates_[i] = fate_of(RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION, records[i].topic);
      ++i;
      continue;
    }
    const auto refused = hand_over(client_->handle(), records[i], &fates_[i], 0);
    const auto code = refused ? rd_kafka_error_code(refused.get()) : RD_KAFKA_RESP_ERR_NO_ERROR;
    if (code == RD_KAFKA_RESP_ERR__QUEUE_FULL) {
      rd_kafka_poll(client_->handle(), kPollMs);
      continue;
    }
    if (is_remembered(code) && asked_about.insert(records[i].topic).second) {
      if (!look_again(*client_, records[i].topic)) break;  // this record and all later ones stay unknown
      continue;
    }
    if (code) fates_[i] = fate_of(code, records[i].topic);
    else ++owed_;
    if (code && fates_[i].kind == Fate::Kind::unknown) break;  // later records must not overtake it
    ++i;
  }
  while (owed_ > 0) {
    rd_kafka_poll(client_->handle(), kPollMs);
    if (cancelled_) cancel();  // also cancels records that were handed over after the first call
  }
  bool unknown = false;
  for (Fate& fate : fates_) {
    unknown = unknown || fate.kind == Fate::Kind::unknown;
    if (unknown) fate = Fate{};
  }
  return std::move(fates_);
}

void KafkaSender::on_delivered(const rd_kafka_message_t& record) noexcept try {
  auto* fate = static_cast<Fate*>(record._private);
  --owed_;
  *fate = fate_of(record.err, records_[static_cast<std::size_t>(fate - fates_.data())].topic);
} catch (...) {  // no memory for the text: the fate stays unknown
}

ports::BrokerSender::Fate KafkaSender::fate_of(rd_kafka_resp_err_t code, const std::string& topic) const {
  if (!code) return {Fate::Kind::sent, {}};
  if (!never_taken(code)) return {};
  return {Fate::Kind::refused, explain(code, "", client_->where(topic))};
}

void KafkaSender::cancel() noexcept {
  cancelled_ = true;
  const std::lock_guard lock(mutex_);
  rd_kafka_purge(client_->handle(), RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
}

}  // namespace turnstile::kafka
