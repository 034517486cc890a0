#pragma once
// One librdkafka client with the callbacks that every client has: logs, errors, and whether any broker answers.

#include <spdlog/logger.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <string>

#include "bell.hpp"
#include "errors.hpp"
#include "settings.hpp"

namespace turnstile::kafka {

/// What one client's owner is told besides. Called on the thread that polls the client (nothing may be thrown into librdkafka's
/// C code, so each is noexcept).
class ClientEvents {
 public:
  virtual ~ClientEvents() = default;
  virtual void on_rebalance(rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t*) noexcept {}
  virtual void on_committed(rd_kafka_resp_err_t, const rd_kafka_topic_partition_list_t*) noexcept {}
  virtual void on_delivered(const rd_kafka_message_t&) noexcept {}
  virtual void on_error(rd_kafka_resp_err_t, const std::string& /*reason*/) noexcept {}
};

/// What a client's callbacks work on. It lives until librdkafka's threads have ended, which may be later than the client's end.
struct ClientState {
  std::shared_ptr<spdlog::logger> logger;
  std::string brokers;
  std::string group;
  ClientEvents* events = nullptr;
  std::shared_ptr<Bell> bell;  ///< librdkafka writes to it
  std::atomic<bool> been_up{false};
  std::atomic<bool> down{false};
  mutable std::mutex failure_mutex;
  std::string failure;
  rd_kafka_resp_err_t failure_code = RD_KAFKA_RESP_ERR_NO_ERROR;

  void answered() noexcept;
  void failed(rd_kafka_resp_err_t code, const char* reason) noexcept;
  void log(int level, const char* facility, const char* text) noexcept;
  [[nodiscard]] Where where(std::string_view topic = {}) const noexcept { return {brokers, group, topic}; }
  [[nodiscard]] std::string last_failure() const;
};

/// Shared by its owner and by every block of records: records must be freed before the client is. The last one to let go
/// destroys the client, on whichever thread that is. Thread-safe.
class Client {
 public:
  /// Throws ConfigError when librdkafka refuses the settings as a whole (a certificate that cannot be read, say).
  /// `events` must outlive the client or be forgotten. `bell`: what librdkafka's queues ring, kept as long as the client.
  static std::shared_ptr<Client> open(Role role, const Settings& settings, std::shared_ptr<spdlog::logger> logger,
                                      ClientEvents* events = nullptr, std::shared_ptr<Bell> bell = nullptr);
  /// Waits for librdkafka's threads to end, up to 5 s. Threads that have not ended by then are left behind, with a log line.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] rd_kafka_t* handle() const noexcept { return handle_; }
  [[nodiscard]] spdlog::logger& logger() const noexcept { return *state_->logger; }
  [[nodiscard]] Where where(std::string_view topic = {}) const noexcept { return state_->where(topic); }
  /// A broker has answered at least once.
  [[nodiscard]] bool has_been_up() const noexcept { return state_->been_up.load(std::memory_order_relaxed); }
  /// No broker answers at the moment.
  [[nodiscard]] bool is_down() const noexcept { return state_->down.load(std::memory_order_relaxed); }
  /// No events from now on; call it on the thread that polls.
  void forget_events() noexcept { state_->events = nullptr; }
  /// For a client that nobody polls: its errors so far come through the callback now.
  void hear_failures() const noexcept { rd_kafka_poll(handle_, 0); }
  /// What failed last, in librdkafka's words, for messages about time-outs.
  [[nodiscard]] std::string last_failure() const { return state_->last_failure(); }
  /// For a request that got no answer: the reason is what the connections failed of, if they did.
  [[nodiscard]] BrokerError no_answer(rd_kafka_resp_err_t code, std::string_view doing,
                                      std::string_view topic = {}) const;

 private:
  explicit Client(std::shared_ptr<ClientState> state) : state_(std::move(state)) {}
  void start(Role role, const Settings& settings);

  const std::shared_ptr<ClientState> state_;
  rd_kafka_t* handle_ = nullptr;
};

}  // namespace turnstile::kafka
