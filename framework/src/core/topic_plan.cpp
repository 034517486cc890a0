#include "core/topic_plan.hpp"

#include "turnstile/error.hpp"

namespace turnstile {

namespace {
IdSource id_source(const std::string& topic, const std::string& text) {
  auto parsed = IdSource::parse(text);
  if (const auto* problem = std::get_if<std::string>(&parsed)) {
    throw ConfigError({"topic '" + topic + "': message_id: " + *problem});
  }
  return std::get<IdSource>(std::move(parsed));
}
}  // namespace

TopicPlan plan_topic(const std::string& topic, const TopicSettings& settings) {
  TopicPlan plan{.topic = topic,
                 .handler = settings.handler.value_or(topic),
                 .limiter = {},
                 .id_source = id_source(topic, settings.message_id.value_or(
                                                   settings.mode == Mode::sequence ? "offset" : "header:message-id")),
                 .retry = settings.retry.value_or(RetryPolicy{}),
                 .dead_letter = dead_letter_name(topic, settings)};
  plan.mode = settings.mode.value_or(Mode::none);
  plan.order = settings.order.value_or(Order::partition);
  if (settings.limit) {
    plan.limit = *settings.limit;
    plan.limiter = settings.limiter.value_or(topic);
  }
  plan.batch = static_cast<std::size_t>(std::max<std::int64_t>(1, settings.batch.value_or(500)));
  plan.duplicates = settings.duplicates.value_or(DuplicatePolicy::skip);
  plan.reply_topics = reply_topic_names(settings);
  plan.max_response =
      static_cast<std::size_t>(settings.max_response.value_or(static_cast<std::int64_t>(plan.max_response)));
  plan.lease = settings.lease.value_or(plan.lease);
  plan.unknown = settings.unknown.value_or(plan.unknown);
  plan.while_running = settings.while_running.value_or(plan.while_running);
  plan.too_old = settings.too_old.value_or(plan.too_old);
  plan.store_down = settings.store_down.value_or(plan.store_down);
  if (plan.mode == Mode::sequence)
    plan.numbering = settings.message_id == "request" ? Numbering::requests : Numbering::offsets;
  plan.request_window = (settings.request_window.value_or(plan.request_window) + 7) / 8 * 8;
  plan.fingerprint = settings.fingerprint.value_or(false);
  plan.handler_timeout = settings.handler_timeout.value_or(std::chrono::seconds(30));
  return plan;
}

}  // namespace turnstile
