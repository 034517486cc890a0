// The composition root: the one place that knows the framework and the real adapters together.

#include "turnstile/config.hpp"
#include "turnstile/consumer.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/log.hpp"
#include "turnstile/poll_loop.hpp"
#include "turnstile/postgres/store.hpp"

namespace turnstile {

Backends connect(const Config& config, std::shared_ptr<spdlog::logger> logger) {
  Backends backends;
  if (!logger) logger = make_logger(config.log);
  if (!config.kafka.empty()) backends.broker = kafka::open_broker(config.kafka, std::move(logger));
  if (config.postgres) backends.store = postgres::open_store(*config.postgres);
  return backends;
}

Consumer::Consumer(Config config) : Consumer(config, connect(config)) {}

PollLoop::PollLoop(Config config) : PollLoop(config, connect(config)) {}

}  // namespace turnstile
