#include "delivery/outgoing.hpp"

#include <stdexcept>

#include "message/replay.hpp"
#include "message/reply.hpp"
#include "support/id_or_new.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

namespace {

/// The index in `items` of the message that a handler replies to. `only`: see TransactionOutgoing.
std::size_t place_of(const Unit& unit, std::span<UnitItem* const> items, const Message* to, const UnitItem* only) {
  const std::string handler = "handler '" + unit.plan().handler + "' ";
  if (to == nullptr && only == nullptr)
    throw std::logic_error(handler +
                           "runs on several messages; name the message that it replies to: ctx.reply(message, body)");
  const Offset offset = to == nullptr ? only->offset() : to->offset();
  for (std::size_t k = 0; k < items.size(); ++k) {
    if (items[k]->offset() == offset) return k;
  }
  throw std::logic_error(handler + "replied to " + where(*to) + ", which is not among the messages of this call");
}

void check_response(const TopicPlan& plan, std::string_view body) {
  if (body.size() <= plan.max_response) return;
  throw ResponseTooLarge("the response has " + std::to_string(body.size()) +
                         " bytes, more than max_response of topic '" + plan.topic + "' (" +
                         std::to_string(plan.max_response) + "); raise max_response, or reply with less");
}

/// Checks a reply, and notes that its message has a reply.
void check_reply(const Unit& unit, UnitItem& item, std::string_view body) {
  check_response(unit.plan(), body);
  if (item.replied)
    throw std::logic_error("handler '" + unit.plan().handler + "' replied twice to " + where(item.message()));
  item.replied = true;
}

/// The trace context of what follows from this message. `from`: null if there are several. Absent: there is none.
std::optional<TraceContext> trace_for(const UnitItem* from) {
  if (from == nullptr) return std::nullopt;
  return from->trace != nullptr ? *from->trace : trace_of(from->message());
}

/// The message, which follows from that one.
OwnedMessage traced(OwnedMessage message, const UnitItem* from) {
  if (const auto trace = trace_for(from)) put_trace(message, *trace);
  return message;
}

/// A handler may publish its input with all its headers. Those of a replay name the handler and the stored retry of the
/// input: another message with them would be skipped.
OwnedMessage sent_as_new(OwnedMessage message, const std::optional<TraceContext>& trace) {
  forget_replay(message);
  if (trace) put_trace(message, *trace);
  return message;
}

[[noreturn]] void refuse_without_store(const std::string& what) {
  throw StoreUnavailable("PostgreSQL is unavailable and the handler runs unclaimed (store_down = \"run\"), so its " +
                         what + " cannot be stored; the handler runs again once PostgreSQL answers");
}

}  // namespace

std::optional<std::pair<OwnedMessage, MessageId>> reply_record(const Unit& unit, const UnitItem& item,
                                                               std::string_view body) {
  const TopicPlan& plan = unit.plan();
  if (plan.reply_topics.empty()) return std::nullopt;
  auto reply = reply_to(item.message(), plan.reply_topics);
  if (const auto* none = std::get_if<NoReply>(&reply)) {
    unit.services().run_log->warn(Code::reply_refused, unit.place().at, plan.handler, item.message(),
                                  "This message gets no reply: " + none->why);
    return std::nullopt;
  }
  auto& record = std::get<OwnedMessage>(reply);
  record.payload = std::string(body);
  return std::pair{traced(std::move(record), &item), reply_id(plan.handler, *item.id)};
}

bool send_reply(const Unit& unit, const UnitItem& item, std::string_view body) {
  const auto reply = reply_record(unit, item, body);
  if (!reply) return false;
  unit.session().publish(reply->first, reply->second);
  return true;
}

std::size_t answer_duplicates(const Unit& unit, const Items& items, std::size_t first) {
  std::vector<MessageId> ids;
  std::vector<std::size_t> places;
  for (std::size_t k = 0; k < items.size(); ++k) {
    if (items[k]->admission != ports::Admission::duplicate) continue;
    ids.push_back(*items[k]->id);
    places.push_back(k);
  }
  const auto responses = unit.session().responses(unit.topic().handler, ids);
  std::size_t sent = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!responses[i]) continue;
    unit.session().at_message(first + places[i]);
    if (send_reply(unit, *items[places[i]], *responses[i])) ++sent;
  }
  return sent;
}

void TransactionOutgoing::reply(const Message* to, std::string_view body) {
  UnitItem& item = *items_[place_of(unit_, items_, to, only_)];
  check_reply(unit_, item, body);
  unit_.session().respond(*item.id, body);
  if (send_reply(unit_, item, body)) ++published_;
}

void TransactionOutgoing::publish(const OwnedMessage& message) {
  const MessageId id = id_or_new(message);
  const auto trace = trace_for(only_);
  if (trace || is_of_replay(message)) unit_.session().publish(sent_as_new(message, trace), id);
  else unit_.session().publish(message, id);
  ++published_;
}

void BufferedOutgoing::reply(const Message* to, std::string_view body) {
  const std::size_t k = place_of(unit_, items_, to, items_.size() == 1 ? items_.front() : nullptr);
  check_reply(unit_, *items_[k], body);
  of_[k].response = body;
  if (auto reply = reply_record(unit_, *items_[k], body)) of_[k].messages.push_back(std::move(*reply));
}

void BufferedOutgoing::publish(const OwnedMessage& message) {
  UnitItem* const only = items_.size() == 1 ? items_.front() : nullptr;
  of_.front().messages.emplace_back(sent_as_new(message, trace_for(only)), id_or_new(message));
}

void NoStoreOutgoing::reply(const Message*, std::string_view) { refuse_without_store("reply"); }
void NoStoreOutgoing::publish(const OwnedMessage&) { refuse_without_store("message"); }

}  // namespace turnstile::detail
