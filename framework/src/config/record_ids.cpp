#include "turnstile/record_ids.hpp"

#include "config/topic_plan.hpp"
#include "message/replay.hpp"
#include "message/request_headers.hpp"

namespace turnstile {

RecordIds::RecordIds(const std::string& topic, const TopicSettings& settings, const std::string& group) {
  detail::TopicPlan plan = detail::plan_topic(topic, settings, group);
  handler_ = std::move(plan.handler);
  group_ = std::move(plan.group);
  mode_ = plan.mode;
  source_ = std::make_shared<const detail::IdSource>(std::move(plan.id_source));
}

RecordIds::Found RecordIds::of(const Message& message, std::int32_t incarnation) const {
  if (auto whom = detail::replayed_for_another(message, handler_, group_)) return ForAnother{std::move(*whom)};
  if (mode_ == Mode::numbered) {
    auto stamped = detail::request_of(message);
    if (auto* missing = std::get_if<detail::MissingId>(&stamped)) return Missing{std::move(missing->why)};
    return detail::message_id(std::get<detail::StampedRequest>(stamped).request);
  }
  auto id = static_cast<const detail::IdSource*>(source_.get())->of(message, incarnation);
  if (auto* missing = std::get_if<detail::MissingId>(&id)) return Missing{std::move(missing->why)};
  return std::get<MessageId>(id);
}

}  // namespace turnstile
