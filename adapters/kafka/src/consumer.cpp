#include "consumer.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <future>
#include <thread>
#include <utility>

#include "edges.hpp"
#include "error_code.hpp"
#include "partition_list.hpp"
#include "records.hpp"
#include "topics.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// librdkafka must see a poll at least every max.poll.interval.ms, even if the caller wants to wait longer.
constexpr milliseconds kLongestWait{1'000};
constexpr milliseconds kSeekTimeout{2'000};
// The longest waits for a broker at the shutdown, and after which time the log reports a wait.
constexpr milliseconds kCommitTimeout{5'000}, kLeaveTimeout{10'000}, kQuietWait{1'000};
// The time for a round trip. A member that does not leave the group costs more. The other members wait for its session
// to end, and librdkafka 2.0.2 does not end its threads.
constexpr milliseconds kHurriedWait{500};
// The wait for the metadata of a topic: an available broker answers within milliseconds. Nothing is polled during the
// wait.
constexpr milliseconds kTopicTimeout{500}, kTopicRest{2'000};
/// How long a member without a partition of a recreated topic waits after a rebalance, before it joins its group again.
constexpr milliseconds kJoinAgainAfter{5'000};
/// How long after a topic was recreated a rebalance may still have missed it.
constexpr milliseconds kReturned{120'000};
constexpr std::size_t kChunk = 1'024;

/// Nothing takes events of partitions' ends (hazard: end-of-partition).
Settings without_ends(Settings settings) {
  settings["enable.partition.eof"] = "false";
  return settings;
}

/// RD_KAFKA_OFFSET_BEGINNING or _END. Absent: the group must have an offset.
std::optional<std::int64_t> reset_to(const std::string& setting) {
  if (setting == "earliest" || setting == "smallest" || setting == "beginning") return RD_KAFKA_OFFSET_BEGINNING;
  if (setting == "latest" || setting == "largest" || setting == "end") return RD_KAFKA_OFFSET_END;
  return std::nullopt;
}

/// Between two questions to a group coordinator that has just begun, and reads its log.
constexpr milliseconds kCoordinatorWait{100};

bool coordinator_begins(rd_kafka_resp_err_t code) {
  return code == RD_KAFKA_RESP_ERR_COORDINATOR_LOAD_IN_PROGRESS ||
         code == RD_KAFKA_RESP_ERR_COORDINATOR_NOT_AVAILABLE || code == RD_KAFKA_RESP_ERR_NOT_COORDINATOR;
}

bool coordinator_begins(rd_kafka_resp_err_t code, const rd_kafka_topic_partition_list_t* list) {
  return coordinator_begins(code) || std::any_of(list->elems, list->elems + list->cnt,
                                                 [](const auto& element) { return coordinator_begins(element.err); });
}

}  // namespace

KafkaConsumer::KafkaConsumer(const Settings& settings, std::shared_ptr<spdlog::logger> logger)
    : wake_up_(std::make_shared<WakeUpEvent>()),
      arrivals_(std::make_shared<QueueArrivals>()),
      client_(Client::open(Role::consumer, without_ends(settings), std::move(logger), this,
                           {wake_up_, {arrivals_, &arrivals_->event()}})),
      wakeup_(settings),
      reset_to_(reset_to(effective(settings, "auto.offset.reset"))),
      gaps_(settings),
      settings_(settings) {
  rd_kafka_poll_set_consumer(client_->handle());
  main_queue_.reset(rd_kafka_queue_get_consumer(client_->handle()));
  wake_up_->listen_to(main_queue_.get());
}

KafkaConsumer::~KafkaConsumer() {
  if (!closed_) close();
}

void KafkaConsumer::subscribe(const std::vector<std::string>& topics, ports::AssignmentListener& listener) {
  listener_ = &listener;
  topics_ = topics;
  if (const auto code = rd_kafka_subscribe(client_->handle(), subscription().get()))
    throw broker_error(code, "subscribing", client_->where());
}

PartitionList KafkaConsumer::subscription() const {
  PartitionList list{rd_kafka_topic_partition_list_new(static_cast<int>(topics_.size()))};
  for (const auto& topic : topics_) rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), RD_KAFKA_PARTITION_UA);
  return list;
}

void KafkaConsumer::poll(milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const bool woken = await(failure_ ? milliseconds{0} : left);
    serve();
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    settle_seeks();
    if (doubt_topics_ || !missing_.empty()) look_at_topics();
    if (!returned_.empty()) join_again_for_topics();
    look_at_idle_partitions();
    if (woken || Clock::now() >= end) return;
  }
}

bool KafkaConsumer::await(milliseconds timeout) {
  return WakeUpEvent::wait_for_either(*wake_up_, arrivals_->unless_awaited(), std::min(timeout, kLongestWait));
}

bool KafkaConsumer::must_poll() { return rd_kafka_queue_length(main_queue_.get()) > 0; }

void KafkaConsumer::serve() {
  while (RecordPtr record{rd_kafka_consumer_poll(client_->handle(), 0)}) serve_record(*record);
}

void KafkaConsumer::serve_record(const rd_kafka_message_t& record) {
  const std::string topic = record.rkt ? rd_kafka_topic_name(record.rkt) : "";
  if (record.err) {
    look_at_error(record.err, rd_kafka_message_errstr(&record), topic, record.partition, record.offset);
    return;
  }
  // Each partition gets its own queue before it is fetched, so no record should arrive here. Such a record would be out
  // of order among the records that were taken already, and must not be lost.
  log_warning(client_->logger(), Code::librdkafka_message,
              fmt::format("kafka: {}[{}]@{} came outside its partition's queue: reading the partition again from there",
                          topic, record.partition, record.offset));
  seek({{topic, record.partition}, record.offset});
}

std::unique_ptr<ports::Block> KafkaConsumer::take(const TopicPartition& from, std::size_t most) {
  const auto found = assigned_.find(from);
  if (found == assigned_.end() || found->second.seek_to) return nullptr;
  Assigned& assigned = found->second;
  const auto waited = rd_kafka_queue_length(assigned.queue.get());
  const auto records = drain(assigned.queue.get(), from, most);
  if (records.empty()) return nullptr;
  assigned.next = records.back()->offset + 1;
  if (wakeup_.due(waited, records, assigned.bytes_since_wakeup))
    FetcherWakeup::wake(client_->handle(), from.topic.c_str(), from.partition);
  return std::make_unique<RecordBlock>(client_, records);
}

// It reads in chunks until the queue is empty (hazard: event-of-a-queue).
std::span<rd_kafka_message_t*> KafkaConsumer::drain(rd_kafka_queue_t* queue, const TopicPartition& from,
                                                    std::size_t most) {
  std::size_t count = 0;
  while (count < most) {
    const auto room = std::min(most - count, kChunk);
    if (scratch_.size() < count + room) scratch_.resize(count + room);
    const auto got = rd_kafka_consume_batch_queue(queue, 0, scratch_.data() + count, room);
    if (got <= 0) break;
    count += without_errors(std::span(scratch_).subspan(count, static_cast<std::size_t>(got)), from);
  }
  return std::span(scratch_).first(count);
}

// Errors arrive among the records. Moves the records to the front, and returns how many there are.
std::size_t KafkaConsumer::without_errors(std::span<rd_kafka_message_t*> fresh, const TopicPartition& from) {
  const auto good = [](const auto* record) { return !record->err; };
  if (std::all_of(fresh.begin(), fresh.end(), good)) return fresh.size();
  const auto errors = std::stable_partition(fresh.begin(), fresh.end(), good);
  for (auto it = errors; it != fresh.end(); ++it) {
    const RecordPtr record{*it};
    look_at_error(record->err, rd_kafka_message_errstr(record.get()), from.topic, from.partition, record->offset);
  }
  return static_cast<std::size_t>(errors - fresh.begin());
}

std::vector<std::optional<ports::GroupOffset>> KafkaConsumer::committed(std::span<const TopicPartition> of,
                                                                        milliseconds timeout) {
  const auto until = Clock::now() + timeout;
  PartitionList list;
  for (;;) {
    list = list_of(of);
    const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
    const auto code = rd_kafka_committed(client_->handle(), list.get(), ms(left));
    if (coordinator_begins(code, list.get()) && Clock::now() + kCoordinatorWait < until) {
      std::this_thread::sleep_for(kCoordinatorWait);
      continue;
    }
    if (code) throw client_->no_answer(code, "requesting committed offsets");
    break;
  }
  std::vector<std::optional<ports::GroupOffset>> offsets;
  for (const auto& element : elements(list.get())) {
    if (element.err) throw broker_error(element.err, "requesting committed offsets", client_->where(element.topic));
    auto& offset = offsets.emplace_back();
    if (element.offset < 0) continue;
    // librdkafka copies it up to the first NUL, and does not change its size.
    const auto* metadata = static_cast<const char*>(element.metadata);
    offset = {element.offset, metadata ? std::string(metadata, strnlen(metadata, element.metadata_size)) : ""};
  }
  return offsets;
}

void KafkaConsumer::commit(std::span<const ports::OffsetCommit> offsets, bool wait) {
  if (offsets.empty()) return;
  const auto list = list_of(offsets);
  if (!wait) {
    if (const auto code = rd_kafka_commit(client_->handle(), list.get(), 1)) on_committed(code, list.get());
    return;
  }
  // rd_kafka_commit() would wait without a time limit while no coordinator answers.
  struct Answer {
    KafkaConsumer* consumer;
    const rd_kafka_topic_partition_list_t* asked;
    bool here = false;
  } answer{this, list.get()};
  const auto on_answer = [](rd_kafka_t*, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* taken,
                            void* opaque) {
    auto& to = *static_cast<Answer*>(opaque);
    to.here = true;
    to.consumer->on_committed(code, taken ? taken : to.asked);
  };
  const Queue answers{rd_kafka_queue_new(client_->handle())};
  const auto code = rd_kafka_commit_queue(client_->handle(), list.get(), answers.get(), on_answer, &answer);
  if (code) return on_committed(code, list.get());
  const bool answered = wait_for("the broker to take the group's offsets", kCommitTimeout, [&] {
    rd_kafka_queue_poll_callback(answers.get(), 50);
    return answer.here;
  });
  if (!answered) on_committed(RD_KAFKA_RESP_ERR__TIMED_OUT, list.get());
}

bool KafkaConsumer::wait_for(const char* what, milliseconds most, const std::function<bool()>& step) {
  const auto begin = Clock::now();
  bool told = false;
  while (!step()) {
    const auto waited = Clock::now() - begin;
    if (waited >= most || (waited >= kHurriedWait && hurry_ && hurry_())) return false;
    if (waited < kQuietWait || std::exchange(told, true)) continue;
    client_->logger().info("kafka: waiting up to {} s for {}", most.count() / 1000, what);
  }
  return true;
}

void KafkaConsumer::tell_of_commit(std::span<const TopicPartitionOffset> offsets, bool committed) {
  if (listener_ && !offsets.empty()) listener_->on_commit_end(offsets, committed);
}

void KafkaConsumer::on_committed(rd_kafka_resp_err_t code, const rd_kafka_topic_partition_list_t* list) noexcept try {
  std::vector<TopicPartitionOffset> good, refused;
  for (const auto& element : elements(list)) {
    (code || element.err ? refused : good).push_back({{element.topic, element.partition}, element.offset});
    if (element.err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART) doubt_topics_ = true;
  }
  tell_of_commit(good, true);
  tell_of_commit(refused, false);
  const rd_kafka_topic_partition_t* bad = nullptr;
  for (const auto& element : elements(list))
    if (element.err && !no_longer_ours(element.err)) bad = &element;
  if (bad) code = bad->err;
  if (!code) {
    last_commit_error_.clear();
    return;
  }
  if (no_longer_ours(code)) {
    client_->logger().debug("kafka: offsets not committed, the partitions are no longer ours: {}",
                            rd_kafka_err2str(code));
    return;
  }
  const std::string topic = bad ? bad->topic : "";
  if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART && joined_) return;  // look_at_topics() reports it
  if (for_good(code)) return fail_for_good(code, "committing offsets", topic);
  if (last_commit_error_ == rd_kafka_err2name(code)) return;
  last_commit_error_ = rd_kafka_err2name(code);
  log_warning(
      client_->logger(), Code::offsets_not_committed,
      fmt::format(
          "{} The group's offsets{} were not committed; retrying. Until that succeeds, messages from there on are "
          "delivered again after a restart.",
          explain(code, client_->last_failure(), client_->where(topic)),
          bad ? fmt::format(" of {}[{}] (up to {})", bad->topic, bad->partition, bad->offset) : ""));
} catch (...) {
  fail(std::current_exception());
}

void KafkaConsumer::seek(const TopicPartitionOffset& to) {
  const auto found = assigned_.find(to.at);
  if (found == assigned_.end()) return;
  found->second.seek_to = to.offset;
  found->second.next = to.offset;
  found->second.read_up_to.reset();
  if (try_seek(to.at, to.offset)) found->second.seek_to.reset();
}

bool KafkaConsumer::try_seek(const TopicPartition& at, Offset to) {
  const Topic topic{rd_kafka_topic_new(client_->handle(), at.topic.c_str(), nullptr)};
  const auto code = topic ? rd_kafka_seek(topic.get(), at.partition, to, ms(kSeekTimeout)) : rd_kafka_last_error();
  if (!code) return true;
  client_->logger().debug("kafka: {}[{}]: seeking to {} again soon: {}", at.topic, at.partition, to,
                          rd_kafka_err2str(code));
  return false;
}

// librdkafka refuses to seek in a partition whose fetching is just starting or ending.
void KafkaConsumer::settle_seeks() {
  for (auto& [at, assigned] : assigned_) {
    if (!assigned.seek_to || !try_seek(at, *assigned.seek_to)) continue;
    assigned.seek_to.reset();
    wake_up_->wake();
  }
}

/// Both questions at once: each can wait behind a fetch. If no thread can be started, one after the other.
std::vector<std::optional<std::pair<Offset, Offset>>> KafkaConsumer::bounds(std::span<const TopicPartition> of,
                                                                            milliseconds timeout) {
  auto asked = std::async(std::launch::async | std::launch::deferred,
                          [&] { return ask_for_edges(*client_, of, RD_KAFKA_OFFSET_BEGINNING, timeout); });
  const auto last = ask_for_edges(*client_, of, RD_KAFKA_OFFSET_END, timeout);
  const auto first = asked.get();
  std::vector<std::optional<std::pair<Offset, Offset>>> bounds;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto code = first[i].code ? first[i].code : last[i].code;
    if (code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
        code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC)
      doubt_topics_ = true;
    const bool known = !code && first[i].offset >= 0 && last[i].offset >= 0;
    bounds.push_back(known ? std::optional(std::pair<Offset, Offset>(first[i].offset, last[i].offset)) : std::nullopt);
  }
  return bounds;
}

void KafkaConsumer::close() {
  if (std::exchange(closed_, true)) return;
  leave_group();
  client_->forget_events();
  assigned_.clear();
  WakeUpEvent::stop_listening_to(main_queue_.get());
  main_queue_.reset();
  uncommitted_.reset();
  client_.reset();
}

/// Replaces rd_kafka_consumer_close(), which waits without a time limit while the broker is unavailable (2.0.2,
/// measured: forever in two of four cases).
void KafkaConsumer::leave_group() {
  constexpr int poll_ms = 50;
  const Queue closing{rd_kafka_queue_new(client_->handle())};
  const KafkaError refused{rd_kafka_consumer_close_queue(client_->handle(), closing.get())};
  const auto left_group = [&] {
    if (rd_kafka_consumer_closed(client_->handle())) return true;
    rd_kafka_queue_poll_callback(closing.get(), poll_ms);  // runs the rebalance callback on this thread
    return false;
  };
  if (!refused && wait_for("the broker to let this member leave the group", kLeaveTimeout, left_group)) return;
  log_warning(client_->logger(), Code::kafka_shutdown_incomplete,
              fmt::format("kafka: this consumer could not leave its group: {}. The other members take over when its "
                          "session ends (session.timeout.ms)",
                          refused ? rd_kafka_error_string(refused.get()) : "no broker answered in time"));
  std::vector<TopicPartition> left;  // partitions for which the callback was not called
  for (const auto& [at, assigned] : assigned_) {
    WakeUpEvent::stop_listening_to(assigned.queue.get());
    left.push_back(at);
  }
  if (!left.empty()) listener_->on_revoked(left, true);
}

/// For librdkafka a deleted topic is no error. Its partitions stay assigned, and are fetched again once another topic
/// of that name exists.
void KafkaConsumer::look_at_topics() {
  if (client_->is_down() || Clock::now() < next_look_at_topics_) return;
  next_look_at_topics_ = Clock::now() + kTopicRest;
  doubt_topics_ = false;
  for (const auto& topic : topics_) {
    const auto exists = exists_now(*client_, topic, kTopicTimeout);
    if (!exists) {
      doubt_topics_ = true;
    } else if (!*exists && missing_.insert(topic).second) {
      listener_->on_topic_change(topic, false);
    } else if (*exists && missing_.erase(topic) > 0) {
      // If librdkafka has dropped the topic from its subscription, only metadata of all topics brings it back at once.
      const rd_kafka_metadata_t* all = nullptr;
      rd_kafka_metadata(client_->handle(), 1, nullptr, &all, ms(kTopicTimeout));
      const Metadata freed{all};
      listener_->on_topic_change(topic, true);
      returned_[topic] = Clock::now();
    }
  }
}

/// If the group's partitions were assigned while a topic did not exist, no member got a partition of it, and no member
/// joins again when it exists again. A member without one joins again, so that the partitions are assigned anew.
void KafkaConsumer::join_again_for_topics() {
  const auto now = Clock::now();
  for (auto it = returned_.begin(); it != returned_.end();) {
    const auto& [topic, since] = *it;
    const bool has_one = std::any_of(assigned_.begin(), assigned_.end(),
                                     [&name = topic](const auto& entry) { return entry.first.topic == name; });
    if (has_one || now < std::max(since, last_rebalance_) + kJoinAgainAfter) {
      it = now > since + kReturned ? returned_.erase(it) : std::next(it);
      continue;
    }
    client_->logger().info(
        "kafka: topic {} exists again, and this member has no partition of it: it joins its group again, so that the "
        "partitions are assigned anew",
        topic);
    returned_.erase(it);
    if (const auto code = rd_kafka_subscribe(client_->handle(), subscription().get()))
      log_warning(client_->logger(), Code::kafka_refused,
                  fmt::format("kafka: joining again: {}", rd_kafka_err2str(code)));
    return;
  }
}

void KafkaConsumer::on_error(rd_kafka_resp_err_t code, const std::string& reason) noexcept {
  if (for_good(code) || code == RD_KAFKA_RESP_ERR__AUTHENTICATION) {
    look_at_error(code, reason, "", RD_KAFKA_PARTITION_UA, RD_KAFKA_OFFSET_INVALID);
  } else if (knows_no_topic(code)) {
    doubt_topics_ = true;  // of an assigned partition; only `reason` contains its name
    wake_up_->wake();
  }
}

void KafkaConsumer::look_at_error(rd_kafka_resp_err_t code, const std::string& reason, const std::string& topic,
                                  std::int32_t partition, Offset offset) {
  switch (code) {
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:  // Client reports it
    case RD_KAFKA_RESP_ERR__TRANSPORT: return;
    case RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED:
      log_error(client_->logger(), Code::max_poll_exceeded,
                fmt::format("kafka: {} The polling thread was held up; this consumer has lost its partitions, and gets "
                            "some again with the next poll.",
                            reason));
      return;
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
      // After a successful login, a refusal can be temporary (new credentials): librdkafka continues to try.
      if (client_->has_been_up()) break;
      return fail_for_good(code, reason, topic);
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      if (joined_) {  // it existed
        doubt_topics_ = true;
        return;
      }
      // A broker that has just learned of a topic also returns this error: ask again before failing.
      if (topic_exists(*client_, topic)) return;
      return fail_for_good(code, reason, topic);
    default:
      if (for_good(code)) return fail_for_good(code, reason, topic);
  }
  const std::string at = topic.empty()   ? ""
                         : partition < 0 ? topic
                         : offset < 0    ? fmt::format("{}[{}]", topic, partition)
                                         : fmt::format("{}[{}]@{}", topic, partition, offset);
  log_warning(client_->logger(), code_of(code),
              explain(code, reason, client_->where(topic)) + (at.empty() ? "" : " At " + at + "."));
}

void KafkaConsumer::fail_for_good(rd_kafka_resp_err_t code, const std::string& reason, const std::string& topic) {
  std::array<char, 512> why{};
  const auto real = code == RD_KAFKA_RESP_ERR__FATAL ? rd_kafka_fatal_error(client_->handle(), why.data(), why.size())
                                                     : RD_KAFKA_RESP_ERR_NO_ERROR;
  fail(std::make_exception_ptr(real ? broker_error(real, why.data(), client_->where(topic))
                                    : broker_error(code, reason, client_->where(topic))));
}

void KafkaConsumer::fail(std::exception_ptr why) noexcept {
  if (!failure_) failure_ = std::move(why);
  wake_up_->wake();
}

}  // namespace turnstile::kafka
