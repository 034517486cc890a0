#pragma once
// Topics and messages for tests of the scheduler.

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include "engine/scheduler.hpp"
#include "tests/support/owned_block.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::detail {

/// Messages at successive offsets.
inline std::unique_ptr<ports::Block> block(const std::string& topic, std::int32_t partition, int count,
                                           Offset first = 0, const std::optional<std::string>& key = std::nullopt) {
  std::vector<OwnedMessage> owned;
  for (int i = 0; i < count; ++i) {
    OwnedMessage message;
    message.topic = topic;
    message.partition = partition;
    message.offset = first + i;
    message.key = key;
    owned.push_back(std::move(message));
  }
  return std::make_unique<test::OwnedBlock>(std::move(owned));
}

inline std::shared_ptr<RunLog> quiet_log() {
  return std::make_shared<RunLog>(
      std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>()), "test");
}

inline std::unique_ptr<TopicState> topic_with_store(const std::shared_ptr<RunLog>& run_log, Pipeline pipeline,
                                                    const TopicSettings& settings,
                                                    std::shared_ptr<ports::Limiter> limiter = nullptr) {
  const auto inbox = std::make_shared<testing::MemoryInbox>();
  TopicRunner::Services services;
  services.store = inbox;
  services.run_log = run_log;
  return std::make_unique<TopicState>(plan_topic("t", settings), std::move(pipeline), inbox->register_handler("t"),
                                      services, std::move(limiter));
}

inline std::unique_ptr<TopicState> transactional_topic(const std::shared_ptr<RunLog>& run_log,
                                                       std::shared_ptr<ports::Limiter> limiter = nullptr,
                                                       std::optional<int> batch = std::nullopt,
                                                       std::optional<Order> order = std::nullopt) {
  TopicSettings settings;
  settings.mode = Mode::transactional;
  if (batch) settings.batch = *batch;
  if (order) settings.order = *order;
  return topic_with_store(
      run_log, [](const Message&) {} | transactional(), settings, std::move(limiter));
}

/// Its handlers go on while the store is unavailable.
inline std::unique_ptr<TopicState> fail_open_topic(const std::shared_ptr<RunLog>& run_log) {
  TopicSettings settings;
  settings.mode = Mode::leased;
  settings.store_down = StoreDownPolicy::run;
  return topic_with_store(
      run_log, [](const Message&) {} | leased(std::chrono::seconds(5)), settings);
}

inline std::unique_ptr<TopicState> plain_topic(const std::shared_ptr<RunLog>& run_log,
                                               std::shared_ptr<ports::Limiter> limiter = nullptr) {
  TopicRunner::Services services;
  services.run_log = run_log;
  return std::make_unique<TopicState>(plan_topic("t", {}), Pipeline([](const Message&) {}), HandlerId{}, services,
                                      std::move(limiter));
}

}  // namespace turnstile::detail
