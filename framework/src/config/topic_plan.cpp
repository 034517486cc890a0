#include "config/topic_plan.hpp"

#include "config/duration.hpp"
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

std::string ids_text(const TopicPlan& plan) {
  switch (plan.mode) {
    case Mode::none: return "no ids (delivered at least once)";
    case Mode::sequence: return plan.numbering == Numbering::requests ? "numbered by producers" : "numbered by offsets";
    case Mode::transactional:
    case Mode::leased: break;
  }
  return "ids from " + plan.id_source.text();
}

const char* text_of(Mode mode) {
  switch (mode) {
    case Mode::none: return "none";
    case Mode::transactional: return "transactional";
    case Mode::leased: return "leased";
    case Mode::sequence: return "sequence";
  }
  return "";
}

const char* text_of(Order order) {
  switch (order) {
    case Order::partition: return "partition";
    case Order::key: return "key";
    case Order::none: return "none";
  }
  return "";
}

}  // namespace

TopicPlan plan_topic(const std::string& topic, const TopicSettings& settings) {
  TopicPlan plan{.topic = topic,
                 .handler = settings.handler.value_or(topic),
                 .limiter = {},
                 .id_source = id_source(topic, settings.message_id.value_or(
                                                   settings.mode == Mode::sequence ? "offset" : "header:message-id")),
                 .retry = settings.retry.value_or(RetrySettings{}).over(RetryPolicy{}),
                 .dead_letter = dead_letter_name(topic, settings)};
  plan.mode = settings.mode.value_or(Mode::none);
  plan.order = settings.order.value_or(Order::partition);
  if (settings.limit) {
    plan.limit = *settings.limit;
    plan.limiter = settings.limiter.value_or(topic);
  }
  plan.batch = static_cast<std::size_t>(std::max<std::int64_t>(1, settings.batch.value_or(500)));
  plan.stop_after_dead = settings.stop_after_dead.value_or(plan.stop_after_dead);
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

std::string describe(const TopicPlan& plan) {
  const std::string delays = to_text(plan.retry.first) + " to " + to_text(plan.retry.cap);
  std::string text = "handler " + plan.handler + ", mode " + text_of(plan.mode) + ", " + ids_text(plan) + ", order " +
                     text_of(plan.order);
  text += plan.limiter.empty() ? ", no limit" : ", limit " + std::to_string(plan.limit) + " as " + plan.limiter;
  if (!plan.dead_letter) return text + ", retried for ever after " + delays + ", no dead letters";
  return text + ", " + std::to_string(plan.retry.attempts) + " attempts, " + delays + " apart, then dead letter to " +
         *plan.dead_letter;
}

}  // namespace turnstile
