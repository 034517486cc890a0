// What handlers say to the outside: responses, replies and messages, in the transaction of their effects.

#include "delivery/unit_run.hpp"
#include "message/reply.hpp"
#include "support/published_id.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

void UnitRun::Outlet::reply(const Message* to, std::string_view body) {
  const std::size_t k = place_of(to);
  const TopicPlan& plan = run_.plan_;
  run_.check_response(body);
  if (run_.replied_.empty()) run_.replied_.resize(range_.size());
  if (run_.replied_[k] != 0)
    throw std::logic_error("handler '" + plan.handler + "' replied twice to " + where(run_.message(range_[k])));
  run_.replied_[k] = 1;
  const std::size_t at = range_[k];
  run_.session_->respond(*run_.ids_[at], body);
  run_.send_reply(at, body);
}

void UnitRun::Outlet::publish(const OwnedMessage& message) {
  run_.session_->publish(message, published_id(message));
  ++run_.published_;
}

std::size_t UnitRun::Outlet::place_of(const Message* to) const {
  if (k_ && (to == nullptr || to->offset() == run_.message(range_[*k_]).offset())) return *k_;
  const std::string handler = "handler '" + run_.plan_.handler + "' ";
  if (to == nullptr)
    throw std::logic_error(handler +
                           "takes several messages at once: say which one it replies to, ctx.reply(message, body)");
  if (!k_) {
    for (std::size_t k = 0; k < range_.size(); ++k) {
      if (run_.message(range_[k]).offset() == to->offset() && run_.admissions_[k] == Admission::fresh) return k;
    }
  }
  throw std::logic_error(handler + "replied to " + where(*to) +
                         ", which is none of the messages that it was called with");
}

void UnitRun::check_response(std::string_view body) const {
  if (body.size() <= plan_.max_response) return;
  throw ResponseTooLarge("a response of " + std::to_string(body.size()) + " bytes, and max_response of topic '" +
                         plan_.topic + "' is " + std::to_string(plan_.max_response) + "; raise it, or reply with less");
}

void UnitRun::send_reply(std::size_t at, std::string_view body) {
  const auto reply = reply_record(at, body);
  if (!reply) return;
  session_->publish(reply->first, reply->second);
  ++published_;
}

std::optional<std::pair<OwnedMessage, MessageId>> UnitRun::reply_record(std::size_t at, std::string_view body) {
  if (plan_.reply_topics.empty()) return std::nullopt;
  auto reply = reply_to(message(at), plan_.reply_topics);
  if (const auto* none = std::get_if<NoReply>(&reply)) {
    runner_.services_.run_log->warn(place_.at, plan_.handler, message(at).offset(), "not replied to: " + none->why);
    return std::nullopt;
  }
  auto& record = std::get<OwnedMessage>(reply);
  record.payload = std::string(body);
  return std::pair{std::move(record), reply_id(plan_.handler, *ids_[at])};
}

/// Answers duplicates as the first ones were answered.
void UnitRun::replay(const Range& range) {
  std::vector<MessageId> ids;
  std::vector<std::size_t> places;
  for (std::size_t k = 0; k < range.size(); ++k) {
    if (admissions_[k] != Admission::duplicate) continue;
    ids.push_back(*ids_[range[k]]);
    places.push_back(k);
  }
  const auto responses = session_->responses(runner_.handler_, ids);
  for (std::size_t i = 0; i < places.size(); ++i) {
    if (!responses[i]) continue;
    session_->at_message(places[i]);
    send_reply(range[places[i]], *responses[i]);
  }
}

}  // namespace turnstile
