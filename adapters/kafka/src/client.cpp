#include "client.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/null_sink.h>

#include <array>
#include <string_view>

namespace turnstile::kafka {
namespace {

// SaslHandshake, ApiVersions, SaslAuthenticate: a broker that answers only these has not let us in yet.
bool is_greeting(int16_t api) { return api == 17 || api == 18 || api == 36; }

spdlog::level::level_enum severity(int syslog_level) {
  if (syslog_level <= 2) return spdlog::level::critical;
  if (syslog_level == 3) return spdlog::level::err;
  if (syslog_level == 4) return spdlog::level::warn;
  return syslog_level <= 6 ? spdlog::level::info : spdlog::level::debug;
}

}  // namespace

std::shared_ptr<Client> Client::open(Role role, const Settings& settings, std::shared_ptr<spdlog::logger> logger,
                                     ClientEvents* events, std::shared_ptr<Bell> bell) {
  if (!logger) logger = std::make_shared<spdlog::logger>("kafka", std::make_shared<spdlog::sinks::null_sink_mt>());
  std::shared_ptr<Client> client{new Client(role, settings, std::move(logger), events, std::move(bell))};
  client->start(role, settings);
  return client;
}

Client::Client(Role role, const Settings& settings, std::shared_ptr<spdlog::logger> logger, ClientEvents* events,
               std::shared_ptr<Bell> bell)
    : logger_(std::move(logger)),
      brokers_(setting(settings, "bootstrap.servers", setting(settings, "metadata.broker.list"))),
      group_(role == Role::consumer ? setting(settings, "group.id", "turnstile") : ""),
      events_(events),
      bell_(std::move(bell)) {}

void Client::start(Role role, const Settings& settings) {
  Conf conf = make_conf(role, settings);
  rd_kafka_conf_set_opaque(conf.get(), this);
  rd_kafka_conf_set_log_cb(conf.get(), &Client::on_log);
  rd_kafka_conf_set_error_cb(conf.get(), [](rd_kafka_t*, int code, const char* reason, void* self) {
    static_cast<Client*>(self)->failed(static_cast<rd_kafka_resp_err_t>(code), reason);
  });
  rd_kafka_conf_interceptor_add_on_new(conf.get(), "turnstile", &Client::on_new, this);
  if (role == Role::consumer) {
    rd_kafka_conf_set_rebalance_cb(
        conf.get(), [](rd_kafka_t*, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list, void* self) {
          if (auto* events = static_cast<Client*>(self)->events_) events->on_rebalance(code, list);
        });
    rd_kafka_conf_set_offset_commit_cb(
        conf.get(), [](rd_kafka_t*, rd_kafka_resp_err_t code, rd_kafka_topic_partition_list_t* list, void* self) {
          if (auto* events = static_cast<Client*>(self)->events_) events->on_committed(code, list);
        });
  }
  if (role == Role::producer) {
    rd_kafka_conf_set_dr_msg_cb(conf.get(), [](rd_kafka_t*, const rd_kafka_message_t* record, void* self) {
      if (auto* events = static_cast<Client*>(self)->events_) events->on_delivered(*record);
    });
  }
  std::array<char, 512> why{};
  handle_ =
      rd_kafka_new(role == Role::producer ? RD_KAFKA_PRODUCER : RD_KAFKA_CONSUMER, conf.get(), why.data(), why.size());
  if (!handle_)
    throw ConfigError(
        {fmt::format("kafka: librdkafka {} refuses the settings: {}", rd_kafka_version_str(), why.data())});
  (void)conf.release();  // librdkafka's, now that it has accepted it
}

Client::~Client() {
  // The consumer has been closed by its owner by now; a second close inside destroy would wait for callbacks.
  if (handle_) rd_kafka_destroy_flags(handle_, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
}

std::string Client::last_failure() const {
  std::lock_guard lock(failure_mutex_);
  return failure_;
}

BrokerError Client::no_answer(rd_kafka_resp_err_t code, std::string_view doing, std::string_view topic) const {
  std::lock_guard lock(failure_mutex_);
  // A wrong password shows up as a time-out of whatever was asked.
  if (failure_code_ == RD_KAFKA_RESP_ERR__AUTHENTICATION || failure_code_ == RD_KAFKA_RESP_ERR__SSL)
    code = failure_code_;
  const std::string separator = doing.empty() || failure_.empty() ? "" : ": ";
  return broker_error(code, std::string(doing) + separator + failure_, where(topic));
}

void Client::answered() noexcept {
  been_up_.store(true, std::memory_order_relaxed);
  if (!down_.load(std::memory_order_relaxed) || !down_.exchange(false)) return;
  logger_->info("kafka {}: answers again", brokers_);
}

void Client::failed(rd_kafka_resp_err_t code, const char* reason) noexcept try {
  if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) {
    if (!down_.exchange(true)) logger_->error("{} Still trying", explain(code, last_failure(), where()));
  } else {
    logger_->debug("kafka {}: {}: {}", brokers_, rd_kafka_err2name(code), reason);
    std::lock_guard lock(failure_mutex_);
    failure_ = reason;
    failure_code_ = code;
  }
  if (events_) events_->on_error(code, reason);
} catch (...) {
  // Nowhere to tell it: the logger itself failed.
}

void Client::log(int level, const char* facility, const char* text) noexcept try {
  const std::string_view what = facility;
  auto severity_here = severity(level);
  if (what == "CONFWARN" &&
      std::string_view(text).find(" property and will be ignored by this") != std::string_view::npos)
    return;  // one section of settings serves consumer and producer
  // Broken connections also come through the error callback, which tells a change of state once.
  if (what == "FAIL" || what == "ERROR") severity_here = spdlog::level::debug;
  logger_->log(severity_here, "librdkafka {}: {}", facility, text);
} catch (...) {
}

void Client::on_log(const rd_kafka_t* rk, int level, const char* facility, const char* text) {
  if (auto* self = static_cast<Client*>(rd_kafka_opaque(rk))) self->log(level, facility, text);
}

rd_kafka_resp_err_t Client::on_new(rd_kafka_t* rk, const rd_kafka_conf_t*, void* self, char*, size_t) {
  return rd_kafka_interceptor_add_on_response_received(rk, "turnstile", &Client::on_response, self);
}

rd_kafka_resp_err_t Client::on_response(rd_kafka_t*, int, const char*, int32_t, int16_t api, int16_t, int32_t, size_t,
                                        int64_t, rd_kafka_resp_err_t code, void* self) {
  if (code == RD_KAFKA_RESP_ERR_NO_ERROR && !is_greeting(api)) static_cast<Client*>(self)->answered();
  return RD_KAFKA_RESP_ERR_NO_ERROR;
}

}  // namespace turnstile::kafka
