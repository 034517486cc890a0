#include "config/topic_plan.hpp"

#include "config/duration.hpp"
#include "config/settings_table.hpp"
#include "turnstile/error.hpp"

namespace turnstile::detail {

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
    case Mode::at_least_once: return "no ids";
    case Mode::by_offset: return "numbered by offsets";
    case Mode::numbered: return "numbered by producers";
    case Mode::transactional:
    case Mode::leased: break;
  }
  return "ids from " + plan.id_source.text();
}

}  // namespace

TopicPlan plan_topic(const std::string& topic, const TopicSettings& set, const std::string& group) {
  const TopicSettings settings = merge(topic_defaults(), set);
  TopicPlan plan{.topic = topic,
                 .handler = settings.handler.value_or(topic),
                 .group = settings.handler && !numbers_records(*settings.mode) ? "" : group,
                 .id_source = id_source(topic, settings.message_id.value_or(
                                                   settings.mode == Mode::by_offset ? "offset" : "header:message-id")),
                 .dead_letter = dead_letter_name(topic, settings)};
  plan.retry = settings.retry->over({});
  plan.breaks = {.percent = *settings.break_percent,
                 .least = *settings.break_least,
                 .window = *settings.break_window,
                 .open_for = *settings.break_for};
  plan.mode = *settings.mode;
  plan.order = *settings.order;
  if (settings.limit) {
    plan.limit = *settings.limit;
    plan.limiter = settings.limiter.value_or(topic);
  }
  plan.batch = static_cast<std::size_t>(std::max<std::int64_t>(1, *settings.batch));
  plan.stop_after_dead = *settings.stop_after_dead;
  plan.duplicates = *settings.duplicates;
  plan.reply_topics = reply_topic_names(settings);
  plan.max_response = static_cast<std::size_t>(*settings.max_response);
  plan.lease = *settings.lease;
  plan.unknown = *settings.unknown;
  plan.while_running = *settings.while_running;
  plan.too_old = *settings.too_old;
  plan.store_down = *settings.store_down;
  plan.request_window = (*settings.request_window + 7) / 8 * 8;
  plan.fingerprint = *settings.fingerprint;
  plan.handler_timeout = *settings.handler_timeout;
  return plan;
}

std::string describe(const TopicPlan& plan) {
  const std::string delays = to_text(plan.retry.first) + " to " + to_text(plan.retry.cap);
  std::string text = "handler " + plan.handler + ", mode " + std::string(word_of(plan.mode)) + ", " + ids_text(plan) +
                     ", order " + std::string(word_of(plan.order));
  text += plan.limiter.empty() ? ", no limit" : ", limit " + std::to_string(plan.limit) + " as " + plan.limiter;
  if (plan.retry.durable != DurableRetry::off) text += ", failed messages wait in PostgreSQL";
  if (!plan.dead_letter) return text + ", retried forever after " + delays + ", no dead letters";
  return text + ", " + std::to_string(plan.retry.attempts) + " attempts, " + delays + " apart, then dead letter to " +
         *plan.dead_letter;
}

std::string describe(const BreakPolicy& breaks) {
  return "circuit breaker opens for " + to_text(breaks.open_for) + " when " + std::to_string(breaks.percent) +
         "% of at least " + std::to_string(breaks.least) + " calls within " + to_text(breaks.window) + " fail";
}

}  // namespace turnstile::detail
