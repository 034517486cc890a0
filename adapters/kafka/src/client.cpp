#include "client.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/null_sink.h>

#include <array>
#include <condition_variable>
#include <string_view>
#include <thread>

#include "error_code.hpp"
#include "record_layout.hpp"
#include "turnstile/log.hpp"

namespace turnstile::kafka {
namespace {

// SaslHandshake, ApiVersions, SaslAuthenticate: a broker that answers only these has not accepted the client yet.
bool is_greeting(int16_t api) { return api == 17 || api == 18 || api == 36; }

constexpr int kDebug = 7;

/// By the numbers of syslog: 3 is an error, 4 a warning, 6 an information.
void log_at(spdlog::logger& logger, int severity, const std::string& text) {
  if (severity <= 3) log_error(logger, Code::librdkafka_message, text);
  else if (severity == 4) log_warning(logger, Code::librdkafka_message, text);
  else if (severity <= 6) logger.info(text);
  else logger.debug(text);
}

ClientState& state_of(void* opaque) { return *static_cast<ClientState*>(opaque); }

void on_log(const rd_kafka_t* rk, int level, const char* facility, const char* text) {
  if (auto* opaque = rd_kafka_opaque(rk)) state_of(opaque).log(level, facility, text);
}

rd_kafka_resp_err_t on_response(rd_kafka_t*, int, const char*, int32_t, int16_t api, int16_t, int32_t, size_t, int64_t,
                                rd_kafka_resp_err_t code, void* opaque) {
  if (code == RD_KAFKA_RESP_ERR_NO_ERROR && !is_greeting(api)) state_of(opaque).answered();
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

rd_kafka_resp_err_t on_new(rd_kafka_t* rk, const rd_kafka_conf_t*, void* opaque, char*, size_t) {
  state_of(opaque).opened = true;
  return rd_kafka_interceptor_add_on_response_received(rk, "turnstile", &on_response, opaque);
}

/// How long librdkafka's threads may take to end, and after which part of it a log line reports the wait.
constexpr std::chrono::milliseconds kLongestEnd{5'000}, kQuietEnd{1'000};

/// rd_kafka_destroy() runs on a thread of its own. This object and the callbacks' data outlive the client.
struct Ending {
  std::mutex mutex;
  std::condition_variable changed;
  bool over = false;

  bool wait(std::chrono::milliseconds most) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, most, [this] { return over; });
  }
};

}  // namespace

std::shared_ptr<Client> Client::open(Role role, const Settings& settings, std::shared_ptr<spdlog::logger> logger,
                                     ClientEvents* events, std::vector<std::shared_ptr<WakeUpEvent>> wake_ups) {
  if (!logger) logger = std::make_shared<spdlog::logger>("kafka", std::make_shared<spdlog::sinks::null_sink_mt>());
  auto state = std::make_shared<ClientState>();
  state->logger = std::move(logger);
  state->brokers = setting(settings, "bootstrap.servers", setting(settings, "metadata.broker.list"));
  if (role == Role::consumer) state->group = setting(settings, "group.id", "turnstile");
  state->plaintext = setting(settings, "security.protocol").empty();
  state->events = events;
  state->wake_ups = std::move(wake_ups);
  std::shared_ptr<Client> client{new Client(std::move(state))};
  client->start(role, settings);
  return client;
}

void Client::start(Role role, const Settings& settings) {
  Conf conf = make_conf(role, settings);
  rd_kafka_conf_set_opaque(conf.get(), state_.get());
  rd_kafka_conf_set_log_cb(conf.get(), &on_log);
  rd_kafka_conf_set_error_cb(conf.get(), [](rd_kafka_t*, int code, const char* reason, void* opaque) {
    state_of(opaque).failed(static_cast<rd_kafka_resp_err_t>(code), reason);
  });
  rd_kafka_conf_interceptor_add_on_new(conf.get(), "turnstile", &on_new, state_.get());
  if (role == Role::consumer) {
    rd_kafka_conf_set_rebalance_cb(
        conf.get(), [](rd_kafka_t*, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list, void* opaque) {
          if (auto* events = state_of(opaque).events) events->on_rebalance(code, list);
        });
    rd_kafka_conf_set_offset_commit_cb(
        conf.get(), [](rd_kafka_t*, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list, void* opaque) {
          if (auto* events = state_of(opaque).events) events->on_committed(code, list);
        });
  }
  if (role == Role::producer) {
    rd_kafka_conf_set_dr_msg_cb(conf.get(), [](rd_kafka_t*, const rd_kafka_message_t* record, void* opaque) {
      if (auto* events = state_of(opaque).events) events->on_delivered(*record);
    });
  }
  in_place_ = kafka::leaves_records_in_place(rd_kafka_version()) && setting(settings, "plugin.library.paths").empty();
  std::array<char, 512> why{};
  handle_ =
      rd_kafka_new(role == Role::producer ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf.get(), why.data(), why.size());
  if (!handle_) {
    // If it fails once it has called on_new, librdkafka has freed parts of `conf`, and freeing it again crashes (2.0.2).
    if (state_->opened) (void)conf.release();
    throw ConfigError(
        {fmt::format("kafka: librdkafka {} rejects the settings: {}", rd_kafka_version_str(), why.data())});
  }
  (void)conf.release();  // librdkafka owns it after it has accepted it
}

// librdkafka 2.0.2 joins its threads without a time limit. One of them never ends after a consumed topic was deleted.
Client::~Client() {
  if (!handle_) return;
  forget_events();
  const auto ending = std::make_shared<Ending>();
  std::thread([handle = handle_, state = state_, ending] {
    // The owner has closed the consumer by now. A second close inside destroy would wait for callbacks.
    rd_kafka_destroy_flags(handle, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    const std::lock_guard lock(ending->mutex);
    ending->over = true;
    ending->changed.notify_all();
  }).detach();
  if (ending->wait(kQuietEnd)) return;
  logger().info("kafka {}: waiting up to {} s for librdkafka's threads to end", state_->brokers,
                kLongestEnd.count() / 1000);
  if (ending->wait(kLongestEnd - kQuietEnd)) return;
  log_warning(
      logger(), Code::kafka_shutdown_incomplete,
      fmt::format("kafka {}: librdkafka {} did not end its threads in time. They wait for a name server that does not "
                  "answer, or a topic that it consumed was deleted (2.0.2 never ends them then). Nothing is lost.",
                  state_->brokers, rd_kafka_version_str()));
}

std::string ClientState::last_failure() const {
  std::lock_guard lock(failure_mutex);
  return failure;
}

BrokerError Client::no_answer(rd_kafka_resp_err_t code, std::string_view doing, std::string_view topic) const {
  std::lock_guard lock(state_->failure_mutex);
  const auto& failure = state_->failure;
  // A wrong password appears as a timeout of the request.
  if (state_->failure_code == RD_KAFKA_RESP_ERR__AUTHENTICATION || state_->failure_code == RD_KAFKA_RESP_ERR__SSL)
    code = state_->failure_code;
  const std::string separator = doing.empty() || failure.empty() ? "" : ": ";
  return broker_error(code, std::string(doing) + separator + failure, where(topic));
}

void ClientState::answered() noexcept {
  been_up.store(true, std::memory_order_relaxed);
  if (!down.load(std::memory_order_relaxed) || !down.exchange(false)) return;
  logger->info("kafka {}: answers again", brokers);
}

void ClientState::failed(rd_kafka_resp_err_t code, const char* reason) noexcept try {
  if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    if (!down.exchange(true))
      log_error(*logger, code_of(code), explain(code, last_failure(), where()) + " Still trying");
  } else {
    logger->debug("kafka {}: {}: {}", brokers, rd_kafka_err2name(code), reason);
    std::lock_guard lock(failure_mutex);
    failure = reason;
    failure_code = code;
  }
  if (events) events->on_error(code, reason);
} catch (...) {
  // The logger itself failed, so this cannot be logged.
}

void ClientState::log(int level, const char* facility, const char* text) noexcept try {
  const std::string_view what = facility;
  if (what == "CONFWARN" &&
      std::string_view(text).find(" property and will be ignored by this") != std::string_view::npos)
    return;  // the same section of settings serves consumer and producer
  // Broken connections also reach the error callback, which logs each change of state once.
  if (what == "FAIL" || what == "ERROR") level = kDebug;
  log_at(*logger, level, fmt::format("librdkafka {}: {}", facility, text));
} catch (...) {
}

}  // namespace turnstile::kafka
