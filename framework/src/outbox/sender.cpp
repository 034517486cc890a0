#include "turnstile/sender.hpp"

#include <fmt/format.h>
#include <spdlog/logger.h>

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "message/request_headers.hpp"
#include "support/periodic_thread.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ids.hpp"
#include "turnstile/log.hpp"

namespace turnstile {

namespace {

/// A session gets three heartbeats in its expiry time. After a heartbeat that could not reach the store, the next comes
/// this soon.
constexpr int kHeartbeats = 3;
constexpr std::chrono::milliseconds kAfterFailure{1'000};
constexpr std::chrono::milliseconds kDescribeWait{10'000};

/// Numbers as ranges: first and last number.
using Ranges = std::map<std::int64_t, std::int64_t>;

bool contains(const Ranges& ranges, std::int64_t number) {
  const auto after = ranges.upper_bound(number);
  return after != ranges.begin() && std::prev(after)->second >= number;
}

void add(Ranges& ranges, std::int64_t number) {
  if (contains(ranges, number)) return;
  const auto after = ranges.upper_bound(number);
  const auto before = after == ranges.begin() ? ranges.end() : std::prev(after);
  auto range =
      before != ranges.end() && before->second + 1 == number ? before : ranges.emplace_hint(after, number, number);
  range->second = number;
  if (after == ranges.end() || after->first != number + 1) return;
  range->second = after->second;
  ranges.erase(after);
}

}  // namespace

void stamp_request(OwnedMessage& message, const ports::ProducerSession& session, std::int64_t number,
                   std::int64_t acked) {
  detail::stamp(message, {session.id, number, acked, {}}, session.secret);
}

bool is_numbered(const OwnedMessage& message) {
  return std::holds_alternative<detail::StampedRequest>(detail::request_of(Message(message)));
}

void StampingSender::stamp(OwnedMessage& message) const {
  const auto has_id = [this](const Header& header) { return header.name == header_; };
  if (std::any_of(message.headers.begin(), message.headers.end(), has_id)) return;
  message.headers.push_back({header_, new_message_id().text()});
}

std::vector<ports::BrokerSender::Fate> StampingSender::send(std::span<const OwnedMessage> messages) {
  std::vector<OwnedMessage> stamped(messages.begin(), messages.end());
  for (OwnedMessage& message : stamped) stamp(message);
  return inner_->send(stamped);
}

NumberedSender::NumberedSender(ports::Broker& broker, std::shared_ptr<ports::Producers> producers, Options options)
    : broker_(broker),
      producers_(std::move(producers)),
      options_(std::move(options)),
      logger_(options_.logger ? options_.logger : make_logger({})),
      sender_(broker.open_sender()),
      thread_(std::make_unique<detail::PeriodicThread>([this] {
        try_heartbeat();
        return detail::PeriodicThread::after(until_heartbeat());
      })) {
  open_session();
  thread_->start(detail::PeriodicThread::after(until_heartbeat()));
}

NumberedSender::~NumberedSender() = default;

void NumberedSender::open_session() {
  auto session = producers_->open({.name = options_.name, .expiry = options_.expiry});
  const std::lock_guard lock(mutex_);
  session_ = std::move(session);
  topics_.clear();
}

MessageId NumberedSender::session() const {
  const std::lock_guard lock(mutex_);
  return session_.id;
}

std::int32_t NumberedSender::partitions_of(const std::string& topic) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto known = partitions_.find(topic); known != partitions_.end()) return known->second;
  }
  const auto info = broker_.describe(topic, kDescribeWait);
  if (!info) throw BrokerError(Code::topic_missing, "topic '" + topic + "' does not exist; create it");
  const std::lock_guard lock(mutex_);
  return partitions_[topic] = info->partitions;
}

NumberedSender::Stamped NumberedSender::stamp(OwnedMessage message) {
  const std::int32_t partitions = partitions_of(message.topic);
  const std::lock_guard lock(mutex_);
  Sent& sent = topics_[message.topic];
  const std::int64_t number = ++sent.last;
  message.partition = message.key ? -1 : static_cast<std::int32_t>(number % partitions);
  stamp_request(message, session_, number, sent.acked);
  return {std::move(message), session_.id, number};
}

std::vector<ports::BrokerSender::Fate> NumberedSender::send(std::span<const OwnedMessage> messages) {
  std::vector<Stamped> stamped;
  stamped.reserve(messages.size());
  // Before the first number is assigned: a number that is never sent would block the acknowledgement of all later ones.
  for (const OwnedMessage& message : messages) partitions_of(message.topic);
  for (const OwnedMessage& message : messages) {
    const auto known = detail::request_of(Message(message));
    if (const auto* its = std::get_if<detail::StampedRequest>(&known))
      stamped.push_back({message, its->request.producer, its->request.number});
    else stamped.push_back(stamp(message));
  }
  std::vector<Fate> fates(
      messages.size(),
      Fate{Fate::Kind::refused, "it was refused before, and its number is used up; send it without its stamp"});
  std::vector<std::size_t> sent;
  std::vector<OwnedMessage> to_send;
  {
    const std::lock_guard lock(mutex_);
    for (std::size_t i = 0; i < stamped.size(); ++i) {
      if (was_refused(stamped[i])) continue;
      sent.push_back(i);
      to_send.push_back(std::move(stamped[i].message));
    }
  }
  auto answers = sender_->send(to_send);
  const std::lock_guard lock(mutex_);
  for (std::size_t k = 0; k < sent.size(); ++k) {
    const Stamped& one = stamped[sent[k]];
    if (answers[k].kind != Fate::Kind::refused && one.session == session_.id)
      add(topics_[to_send[k].topic].perhaps_sent, one.number);
  }
  for (std::size_t k = 0; k < sent.size(); ++k) {
    Fate& fate = fates[sent[k]] = std::move(answers[k]);
    const Stamped& one = stamped[sent[k]];
    if (fate.kind == Fate::Kind::refused && is_perhaps_sent(to_send[k].topic, one))
      fate = {Fate::Kind::unknown,
              fate.why + " An earlier send may have stored it: correct the cause, then send it again with its stamp."};
    if (fate.kind == Fate::Kind::unknown) continue;
    // A refused message arrives nowhere. A delivered message may still need its response.
    if (fate.kind == Fate::Kind::sent && options_.acknowledge == Acknowledge::by_hand) continue;
    if (one.session != session_.id) continue;
    if (fate.kind == Fate::Kind::refused) add(topics_[to_send[k].topic].refused, one.number);
    close(to_send[k].topic, one.number);
  }
  return fates;
}

bool NumberedSender::was_refused(const Stamped& one) const {
  const auto sent = topics_.find(one.message.topic);
  return one.session == session_.id && sent != topics_.end() && contains(sent->second.refused, one.number);
}

/// Of another session's numbers nothing is known.
bool NumberedSender::is_perhaps_sent(const std::string& topic, const Stamped& one) const {
  if (one.session != session_.id) return true;
  const auto sent = topics_.find(topic);
  return sent != topics_.end() && contains(sent->second.perhaps_sent, one.number);
}

void NumberedSender::acknowledge(const std::string& topic, const MessageId& session, std::int64_t number) {
  const std::lock_guard lock(mutex_);
  if (session == session_.id) close(topic, number);
}

void NumberedSender::close(const std::string& topic, std::int64_t number) {
  Sent& sent = topics_[topic];
  if (number <= sent.acked || number > sent.last) return;
  add(sent.closed, number);
  const auto first = sent.closed.begin();
  if (first->first != sent.acked + 1) return;
  sent.acked = first->second;
  sent.closed.erase(first);
}

std::chrono::milliseconds NumberedSender::until_heartbeat() const {
  const auto pause = options_.expiry / kHeartbeats;
  return failing_ ? std::min(kAfterFailure, pause) : pause;
}

void NumberedSender::try_heartbeat() {
  std::string trouble;
  try {
    heartbeat();
  } catch (const std::exception& e) {
    trouble = e.what();
  }
  const bool was_failing = std::exchange(failing_, !trouble.empty());
  if (failing_ && !was_failing)
    log_warning(*logger_, Code::heartbeat_failed,
                "producer '" + options_.name + "': its heartbeat could not be sent; retrying: " + trouble);
  if (!failing_ && was_failing) logger_->info("producer '{}': its heartbeats are sent again", options_.name);
}

void NumberedSender::heartbeat() {
  const MessageId id = session();
  if (producers_->heartbeat(id)) return;
  open_session();
  log_warning(
      *logger_, Code::producer_session_expired,
      fmt::format("producer '{}': its session {} has expired, since no heartbeat reached PostgreSQL for {} ms; it "
                  "continues as session {}. Messages stamped before, and sent from now on, do not run",
                  options_.name, id.text(), options_.expiry.count(), session().text()));
}

}  // namespace turnstile
