#include "token_log.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <thread>

#include "edges.hpp"
#include "error_code.hpp"
#include "errors.hpp"
#include "hand_over.hpp"
#include "token_log_settings.hpp"
#include "token_topic.hpp"
#include "topics.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;

constexpr int kAskTimeoutMs = kTokenLogRequestMs;
constexpr milliseconds kAskTimeout{kAskTimeoutMs};
constexpr milliseconds kAskOnceMoreAfter{100};
constexpr std::size_t kMostEvents = 1'024;
// A broker that has just started may not know a topic yet, so all answers during this time must report it missing.
// Waiting loses nothing: without the topic no member can renew its lease, and each stops at its own deadline.
constexpr milliseconds kGoneForGood{5'000};
constexpr milliseconds kLookEvery{1'000};
constexpr milliseconds kLookTimeout{500};
// An unreadable record is requested again at this interval, for this time. Nothing is read back in between, so the
// permit pools close at the member's own deadline.
constexpr milliseconds kReadAgainEvery{200};
constexpr milliseconds kUnreadableForGood{5'000};
const std::string snapshot_key = "state";

std::string reason(rd_kafka_resp_err_t code, const std::string& topic, const Settings& settings) {
  std::string text = rd_kafka_err2str(code);
  if (code == RD_KAFKA_RESP_ERR_INVALID_RECORD && !topic.ends_with(snapshot_topic(""))) {
    text += fmt::format(
        "; a compacted topic refuses records without a key, so check that the topic's cleanup.policy is delete. To set "
        "it: kafka-configs.sh --bootstrap-server {} --alter --entity-type topics --entity-name {} --add-config "
        "cleanup.policy=delete",
        setting(settings, "bootstrap.servers"), topic);
  }
  if (code == RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED) text += "; grant this user Write on topic " + topic;
  if (code == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE) text += "; raise max.message.bytes of topic " + topic;
  if (code == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP) {
    text += fmt::format(
        "; the clock of this machine, or of the broker, is wrong. To let the broker stamp the records: kafka-configs.sh "
        "--bootstrap-server {} --alter --entity-type topics --entity-name {} --add-config "
        "message.timestamp.type=LogAppendTime",
        setting(settings, "bootstrap.servers"), topic);
  }
  return text;
}

bool says_gone(rd_kafka_resp_err_t code) {
  return code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
         code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART;
}

/// The opaque value of a delivery report: 0 for an event, otherwise the snapshot's position + 1.
void* opaque(std::int64_t snapshot_of) { return reinterpret_cast<void*>(static_cast<std::intptr_t>(snapshot_of + 1)); }

}  // namespace

KafkaTokenLog::KafkaTokenLog(const Settings& settings, std::string topic, std::uint32_t part, LogUse use,
                             std::shared_ptr<spdlog::logger> logger)
    : settings_(settings),
      topic_(std::move(topic)),
      partition_(static_cast<std::int32_t>(part)),
      use_(use),
      logger_(std::move(logger)),
      wake_up_(std::make_shared<WakeUpEvent>()),
      consumer_(Client::open(Role::consumer, token_log_reader_settings(settings, use == LogUse::reader), logger_,
                             nullptr, {wake_up_})) {
  if (use == LogUse::member) open_producer();
}

KafkaTokenLog::~KafkaTokenLog() {
  stop();
  if (!producer_) return;
  producer_->forget_events();
  end_elsewhere(std::move(producer_));  // at the same time as earlier ones
}

std::string KafkaTokenLog::name() const {
  const std::string of_part = partition_ > 0 ? fmt::format("[{}]", partition_) : "";
  return fmt::format("topic {}{} at {}", topic_, of_part, setting(settings_, "bootstrap.servers"));
}

// --- reading
// -----------------------------------------------------------------------------------------------------------

std::int64_t KafkaTokenLog::ask_for(std::int64_t edge, const TopicPartition& at, milliseconds patience) const {
  const auto until = std::chrono::steady_clock::now() + patience;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(until - std::chrono::steady_clock::now());
    const auto [code, offset] = ask_for_edge(*consumer_, at, edge, left);
    if (!code) return offset;
    // A broker that has just come back may not lead the partition yet, or not know it.
    if (for_good(code) || std::chrono::steady_clock::now() + kAskOnceMoreAfter >= until) {
      consumer_->hear_failures();
      throw consumer_->no_answer(code, "requesting its first and last offset", at.topic);
    }
    std::this_thread::sleep_for(kAskOnceMoreAfter);
  }
}

std::int64_t KafkaTokenLog::begin() { return ask_for(RD_KAFKA_OFFSET_BEGINNING, {topic_, partition_}, kAskTimeout); }

std::int64_t KafkaTokenLog::end() { return ask_for(RD_KAFKA_OFFSET_END, {topic_, partition_}, kAskTimeout); }

std::optional<std::int64_t> KafkaTokenLog::known_end() const {
  std::int64_t low = RD_KAFKA_OFFSET_INVALID, high = RD_KAFKA_OFFSET_INVALID;
  const auto code = rd_kafka_get_watermark_offsets(consumer_->handle(), topic_.c_str(), partition_, &low, &high);
  return code || high < 0 ? std::nullopt : std::optional(high);
}

std::optional<ports::TokenLog::Snapshot> KafkaTokenLog::snapshot(std::int64_t before) {
  if (!topic_exists(*consumer_, snapshot_topic(topic_))) return std::nullopt;
  return newest_snapshot(partition_, before);
}

std::uint32_t KafkaTokenLog::snapshot_parts() {
  return static_cast<std::uint32_t>(shape(*consumer_, snapshot_topic(topic_), kAskTimeout).partitions);
}

std::optional<ports::TokenLog::Snapshot> KafkaTokenLog::snapshot_of(std::uint32_t part) {
  return newest_snapshot(static_cast<std::int32_t>(part), kNewest);
}

/// Reads from the end, one at a time: only the newest snapshots are needed, and before compaction the topic can contain
/// thousands.
std::optional<ports::TokenLog::Snapshot> KafkaTokenLog::newest_snapshot(std::int32_t partition,
                                                                        std::int64_t before) const {
  const TopicPartition at{snapshot_topic(topic_), partition};
  const auto low = ask_for(RD_KAFKA_OFFSET_BEGINNING, at, kAskTimeout);
  before = std::min(before, ask_for(RD_KAFKA_OFFSET_END, at, kAskTimeout));
  // Compaction leaves gaps, so the record before an offset can be far below it.
  for (std::int64_t step = 1; before > low; step *= 2) {
    const std::int64_t from = std::max(low, before - step);
    if (auto found = last_snapshot(at, from, before)) return found;
    before = from;
  }
  return std::nullopt;
}

/// Uses a client of its own, which learns the end of the partition, and keeps no records afterwards.
std::optional<ports::TokenLog::Snapshot> KafkaTokenLog::last_snapshot(const TopicPartition& at, std::int64_t from,
                                                                      std::int64_t before) const {
  Settings settings = token_log_reader_settings(settings_, true);
  settings["queued.max.messages.kbytes"] = "1024";
  const auto client = Client::open(Role::consumer, settings, logger_);
  const Topic handle{rd_kafka_topic_new(client->handle(), at.topic.c_str(), nullptr)};
  if (rd_kafka_consume_start(handle.get(), at.partition, from) != 0)
    throw broker_error(rd_kafka_last_error(), "", client->where(at.topic));
  const auto stop = [&](const void*) { rd_kafka_consume_stop(handle.get(), at.partition); };
  const std::unique_ptr<const void, decltype(stop)> stopping{handle.get(), stop};
  std::optional<Snapshot> found;
  auto until = std::chrono::steady_clock::now() + milliseconds{kAskTimeoutMs};
  while (true) {
    const RecordPtr record{rd_kafka_consume(handle.get(), at.partition, kAskTimeoutMs)};
    client->hear_failures();
    if (!record || std::chrono::steady_clock::now() > until)
      throw client->no_answer(RD_KAFKA_RESP_ERR__TIMED_OUT, "reading snapshots", at.topic);
    if (record->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) return found;
    if (record->err) {
      if (for_good(record->err)) throw broker_error(record->err, "reading snapshots", client->where(at.topic));
      continue;
    }
    if (record->offset >= before) return found;
    until = std::chrono::steady_clock::now() + milliseconds{kAskTimeoutMs};
    if (record->payload != nullptr)
      found = {record->offset, std::string(static_cast<const char*>(record->payload), record->len)};
    if (record->offset + 1 == before) return found;
  }
}

void KafkaTokenLog::seek(std::int64_t position) {
  stop();
  start(position);
}

void KafkaTokenLog::start(std::int64_t position) {
  reading_.reset(rd_kafka_topic_new(consumer_->handle(), topic_.c_str(), nullptr));
  queue_.reset(rd_kafka_queue_new(consumer_->handle()));
  wake_up_->listen_to(queue_.get());
  if (rd_kafka_consume_start_queue(reading_.get(), partition_, position, queue_.get()) != 0)
    throw broker_error(rd_kafka_last_error(), "", consumer_->where(topic_));
  next_ = position;
  reads_again_ = false;
  out_of_range_ = false;
}

void KafkaTokenLog::stop() {
  if (!reading_) return;
  rd_kafka_consume_stop(reading_.get(), partition_);
  WakeUpEvent::stop_listening_to(queue_.get());
  queue_.reset();
  reading_.reset();
}

std::vector<ports::TokenLog::Record> KafkaTokenLog::read(milliseconds timeout) {
  std::vector<Record> records;
  if (may_be_gone_) look_whether_it_is_gone();
  if (out_of_range_) look_where_it_begins();
  scratch_.resize(kMostEvents);
  if (producer_) rd_kafka_poll(producer_->handle(), 0);
  rd_kafka_poll(consumer_->handle(), 0);
  if (reads_again_) {
    const auto left = std::chrono::ceil<milliseconds>(read_again_at_ - std::chrono::steady_clock::now());
    if (left > milliseconds(0)) wake_up_->wait(std::min(timeout, left));
    else seek(next_);
    return records;
  }
  for (int round = 0; round < 2; ++round) {
    const auto got = rd_kafka_consume_batch_queue(queue_.get(), 0, scratch_.data(), scratch_.size());
    std::vector<RecordPtr> owned;
    for (std::ptrdiff_t i = 0; i < got; ++i) owned.emplace_back(scratch_[static_cast<std::size_t>(i)]);
    for (const auto& record : owned) take(*record, records);
    if (got > 0) {
      // librdkafka wakes only for a queue that was empty, so this wakes for the rest of the queue.
      if (static_cast<std::size_t>(got) == scratch_.size()) wake_up_->wake();
      return records;
    }
    if (round == 0 && !wake_up_->wait(timeout)) break;
  }
  return records;
}

void KafkaTokenLog::take(const rd_kafka_message_t& record, std::vector<Record>& into) {
  if (reads_again_) return;  // it comes after an unreadable record
  if (record.err) {
    if (record.err == RD_KAFKA_RESP_ERR__PARTITION_EOF) fill(record.offset, into);
    else look_at_error(record);
    return;
  }
  if (record.offset < next_) return;
  fill(record.offset, into);
  rd_kafka_timestamp_type_t kind{};
  const auto time_ms = std::max<std::int64_t>(rd_kafka_message_timestamp(&record, &kind), 0);
  into.push_back({.position = record.offset,
                  .bytes = record.payload != nullptr ? std::string(static_cast<const char*>(record.payload), record.len)
                                                     : std::string(),
                  .time_ms = time_ms});
  next_ = record.offset + 1;
  unreadable_since_ = {};
}

/// The positions in between were never records (markers of another program's transaction), and mean nothing to all
/// members. They cannot be deleted records: a broker answers a fetch below the log's beginning with an error, and
/// librdkafka continues where the last answer ended.
/// So no request to the broker is necessary, and a broker that does not answer cannot block a member that has records
/// to read.
void KafkaTokenLog::fill(std::int64_t up_to, std::vector<Record>& into) {
  for (; next_ < up_to; ++next_) into.push_back({.position = next_, .bytes = {}});
}

TokenLogTrimmed KafkaTokenLog::trimmed(std::int64_t low) const {
  return TokenLogTrimmed(
      fmt::format("{}: positions {} to {} were deleted before they were read. {}", name(), next_, low - 1,
                  what_to_do("This member continues from a newer snapshot. If this repeats, raise the "
                             "topic's retention.ms")));
}

/// The requested position does not exist. Either it was deleted because a snapshot covers it, or it never existed.
void KafkaTokenLog::look_where_it_begins() {
  std::int64_t low = 0;
  try {
    low = ask_for(RD_KAFKA_OFFSET_BEGINNING, {topic_, partition_}, kLookTimeout);
  } catch (const BrokerError&) {
    return;  // no answer: not known yet
  }
  if (low > next_) throw trimmed(low);
  throw TokenLogBroken(fmt::format(
      "{}: position {} no longer exists: the topic was truncated or recreated, so it is unknown which members hold permits. {}",
      name(), next_,
      what_to_do(
          "No handler under a limit starts in this process. Stop all members of the domain, then start them again")));
}

TokenLogBroken KafkaTokenLog::gone() const {
  return TokenLogBroken(
      Code::token_log_deleted,
      fmt::format(
          "{} was deleted: it is unknown which members hold permits. {}", name(),
          what_to_do("No handler under a limit starts in this process. Stop all members of the domain, then start them "
                     "again: the first member creates the topic")));
}

/// librdkafka does not report a deleted topic to readers.
void KafkaTokenLog::look_whether_it_is_gone() {
  const auto now = std::chrono::steady_clock::now();
  if (now < ask_again_) return;
  ask_again_ = now + kLookEvery;
  bool is_gone = false;
  try {
    is_gone = shape(*consumer_, topic_, kLookTimeout).partitions == 0;
  } catch (const BrokerError&) {
    return;  // no answer: not known yet
  }
  may_be_gone_ = is_gone;
  if (!is_gone) gone_since_ = {};
  else if (gone_since_ == std::chrono::steady_clock::time_point{}) gone_since_ = now;
  else if (now - gone_since_ >= kGoneForGood) throw gone();
}

/// librdkafka continues after a batch that it could not read (a wrong checksum, bytes that cannot be decompressed).
/// This member would miss the records, while others read and apply them. So it reads the batch again until it succeeds.
void KafkaTokenLog::unreadable(const rd_kafka_message_t& record) {
  const auto now = std::chrono::steady_clock::now();
  const bool is_damaged =
      record.err == RD_KAFKA_RESP_ERR__BAD_MSG || record.err == RD_KAFKA_RESP_ERR__BAD_COMPRESSION ||
      record.err == RD_KAFKA_RESP_ERR_INVALID_MSG || record.err == RD_KAFKA_RESP_ERR__NOT_IMPLEMENTED;
  // The time in which a batch was kept from this member does not count for one that is damaged.
  if (std::exchange(found_damaged_, is_damaged) != is_damaged) unreadable_since_ = {};
  if (unreadable_since_ == std::chrono::steady_clock::time_point{}) {
    unreadable_since_ = now;
    tell_unreadable(record);
  }
  if (is_damaged && now - unreadable_since_ >= kUnreadableForGood) {
    throw TokenLogBroken(fmt::format(
        "{}: position {} could not be read for {} ms ({}): it is unknown which members hold permits. {}", name(), next_,
        kUnreadableForGood.count(), rd_kafka_message_errstr(&record),
        what_to_do(
            "No handler under a limit starts in this process. If the other members can read the position, check this machine "
            "and its network, and restart this process. Otherwise check the disks of the brokers, stop all members of the "
            "domain, delete the topic and its snapshots, then start the members again")));
  }
  reads_again_ = true;
  read_again_at_ = now + kReadAgainEvery;
}

void KafkaTokenLog::tell_unreadable(const rd_kafka_message_t& record) const {
  const char* const why = rd_kafka_message_errstr(&record);
  if (!for_good(record.err)) {
    log_warning(consumer_->logger(), Code::token_log_unreadable,
                fmt::format("{}: position {} cannot be read: {}. Reading it again", name(), next_, why));
    return;
  }
  log_error(consumer_->logger(), code_of(record.err),
            fmt::format("the token log cannot be read from position {} on: {} Until it can be, this process starts no "
                        "handler under a limit once its lease is over; then it continues by itself",
                        next_, explain(record.err, why, consumer_->where(topic_))));
}

/// A member waits until a right that it lacks is back: it may be missing for a moment only, and its lease bounds what it
/// starts meanwhile. A reader reports it.
void KafkaTokenLog::look_at_error(const rd_kafka_message_t& record) {
  switch (record.err) {
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE: out_of_range_ = true; return look_where_it_begins();
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART: throw gone();
    default:
      if (use_ == LogUse::reader && for_good(record.err))
        throw broker_error(record.err, rd_kafka_message_errstr(&record), consumer_->where(topic_));
      unreadable(record);
  }
}

std::string KafkaTokenLog::what_to_do(std::string_view of_a_member) const {
  return use_ == LogUse::member ? std::string(of_a_member)
                                : "Try again; if this repeats, stop all members of the domain, then start them again";
}

// --- writing ---------------------------------------------------------------------------------------------------------

void KafkaTokenLog::open_producer() {
  if (producer_) {
    producer_->forget_events();
    rd_kafka_purge(producer_->handle(),
                   RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING);
    end_elsewhere(std::move(producer_));
  }
  producer_ = Client::open(Role::producer, token_log_writer_settings(settings_), logger_, this);
}

/// A client needs seconds to end while a name server does not answer. The caller's thread renews the lease, so it cannot
/// wait.
void KafkaTokenLog::end_elsewhere(std::shared_ptr<Client> client) {
  std::erase_if(ending_, [](const auto& end) { return end.wait_for(milliseconds{0}) == std::future_status::ready; });
  ending_.push_back(std::async(std::launch::async, [client = std::move(client)]() mutable { client.reset(); }));
}

void KafkaTokenLog::append(std::string bytes) { produce(topic_, {}, bytes, -1); }

void KafkaTokenLog::save(std::int64_t position, std::string snapshot) {
  produce(snapshot_topic(topic_), snapshot_key, snapshot, position);
}

void KafkaTokenLog::produce(const std::string& topic, const std::string& key, std::string_view bytes,
                            std::int64_t snapshot_of) {
  if (!producer_) open_producer();
  OwnedMessage record;
  record.topic = topic;
  record.partition = partition_;
  if (!key.empty()) record.key = key;
  record.payload = bytes;
  const KafkaError refused = hand_over(producer_->handle(), record, opaque(snapshot_of), RD_KAFKA_MSG_F_COPY);
  if (!refused) return;
  const auto why = rd_kafka_error_code(refused.get());
  if (snapshot_of >= 0) not_saved(snapshot_of, why);
  else not_written(why);
}

void KafkaTokenLog::on_delivered(const rd_kafka_message_t& record) noexcept {
  const auto mark = reinterpret_cast<std::intptr_t>(record._private);
  if (mark == 0 && record.err) not_written(record.err);
  else if (mark > 0 && record.err) not_saved(mark - 1, record.err);
  else if (mark > 0) saved_ = std::max<std::int64_t>(saved_, mark - 1);
}

void KafkaTokenLog::not_written(rd_kafka_resp_err_t code) {
  failed_ = true;
  may_be_gone_ = may_be_gone_ || says_gone(code);
  why_failed_ = reason(code, topic_, settings_);
}

void KafkaTokenLog::not_saved(std::int64_t position, rd_kafka_resp_err_t code) noexcept try {
  // A purged snapshot is stored again with the next one.
  if (code == RD_KAFKA_RESP_ERR__PURGE_QUEUE || code == RD_KAFKA_RESP_ERR__PURGE_INFLIGHT) return;
  if (std::exchange(told_not_saved_, code) == code) return;
  log_warning(
      consumer_->logger(), Code::snapshot_not_saved,
      fmt::format("the snapshot of position {} could not be saved in topic {}: {}. Until one is, the token log {} "
                  "grows, and if the snapshots before it were deleted, no member can join",
                  position, snapshot_topic(topic_), reason(code, snapshot_topic(topic_), settings_), topic_));
} catch (...) {  // only a log line is lost
}

bool KafkaTokenLog::failed() {
  if (!std::exchange(failed_, false)) return false;
  open_producer();
  return true;
}

void KafkaTokenLog::trim(std::int64_t below) {
  const PartitionList list{rd_kafka_topic_partition_list_new(1)};
  if (!producer_) open_producer();
  rd_kafka_topic_partition_list_add(list.get(), topic_.c_str(), partition_)->offset = below;
  rd_kafka_DeleteRecords_t* request = rd_kafka_DeleteRecords_new(list.get());
  const Queue answers{rd_kafka_queue_new(producer_->handle())};
  // No caller waits for the answer: records that are not deleted now are deleted with the next snapshot.
  rd_kafka_DeleteRecords(producer_->handle(), &request, 1, nullptr, answers.get());
  rd_kafka_DeleteRecords_destroy(request);
}

void KafkaTokenLog::flush(milliseconds timeout) {
  if (producer_) rd_kafka_flush(producer_->handle(), static_cast<int>(timeout.count()));
}

// --- opening ---------------------------------------------------------------------------------------------------------

std::unique_ptr<ports::TokenLog> open_token_log(const Settings& settings, const TokenTopic& topic,
                                                std::shared_ptr<spdlog::logger> logger) {
  check(settings);
  ensure_token_topics(settings, topic, logger);
  return std::make_unique<KafkaTokenLog>(settings, topic.name, 0, LogUse::member, std::move(logger));
}

std::unique_ptr<ports::TokenLog> open_token_log_part(const Settings& settings, const TokenTopic& topic,
                                                     std::uint32_t part, std::shared_ptr<spdlog::logger> logger) {
  if (part == 0) return open_token_log(settings, topic, std::move(logger));
  must_have_part(settings, topic.name, part, logger);
  return std::make_unique<KafkaTokenLog>(settings, topic.name, part, LogUse::member, std::move(logger));
}

std::unique_ptr<ports::TokenLog> find_token_log(const Settings& settings, const std::string& topic,
                                                std::shared_ptr<spdlog::logger> logger) {
  check(settings);
  if (!token_topic_exists(settings, topic, logger)) return nullptr;
  return std::make_unique<KafkaTokenLog>(settings, topic, 0, LogUse::reader, std::move(logger));
}

std::unique_ptr<ports::TokenLog> find_token_log_part(const Settings& settings, const std::string& topic,
                                                     std::uint32_t part, std::shared_ptr<spdlog::logger> logger) {
  if (part == 0) return find_token_log(settings, topic, std::move(logger));
  check(settings);
  must_have_part(settings, topic, part, logger);
  return std::make_unique<KafkaTokenLog>(settings, topic, part, LogUse::reader, std::move(logger));
}

TokenLogParts parts_of_token_log(const Settings& settings, const std::string& topic) {
  return [settings, topic](std::uint32_t part) { return find_token_log_part(settings, topic, part, nullptr); };
}

std::shared_ptr<TokenDomain> open_limiters(const Settings& settings, const TokenTopic& topic,
                                           const TokenSettings& tokens, std::shared_ptr<spdlog::logger> logger) {
  const auto open = [settings, topic, logger](std::uint32_t part) {
    return open_token_log_part(settings, topic, part, logger);
  };
  return join_token_domain(open, tokens, logger);
}

}  // namespace turnstile::kafka
