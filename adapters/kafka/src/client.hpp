#pragma once
// A librdkafka client with the callbacks that every client has: log lines, errors, and whether any broker answers.

#include <spdlog/logger.h>

#include <atomic>
#include <exception>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "errors.hpp"
#include "settings.hpp"
#include "wake_up_event.hpp"

namespace turnstile::kafka {

/// Further callbacks for the owner of a client. They run on the thread that polls the client. Each is noexcept, because
/// no exception may enter librdkafka's C code.
class ClientEvents {
 public:
  virtual ~ClientEvents() = default;
  virtual void on_rebalance(rd_kafka_resp_err_t, rd_kafka_topic_partition_list_t*) noexcept {}
  virtual void on_committed(rd_kafka_resp_err_t, const rd_kafka_topic_partition_list_t*) noexcept {}
  virtual void on_delivered(const rd_kafka_message_t&) noexcept {}
  virtual void on_error(rd_kafka_resp_err_t, const std::string& /*reason*/) noexcept {}
};

/// The data of a client's callbacks. It lives until librdkafka's threads have ended, which can be after the end of the
/// client.
struct ClientState {
  std::shared_ptr<spdlog::logger> logger;
  std::string brokers;
  std::string group;
  bool plaintext = false;  ///< security.protocol is not set
  ClientEvents* events = nullptr;
  std::vector<std::shared_ptr<WakeUpEvent>> wake_ups;  ///< librdkafka writes to them
  bool opened = false;                                 ///< librdkafka has called on_new
  std::atomic<bool> been_up{false};
  std::atomic<bool> down{false};
  mutable std::mutex failure_mutex;
  std::string failure;
  rd_kafka_resp_err_t failure_code = RD_KAFKA_RESP_ERR_NO_ERROR;

  void answered() noexcept;
  void failed(rd_kafka_resp_err_t code, const char* reason) noexcept;
  void log(int level, const char* facility, const char* text) noexcept;
  [[nodiscard]] Where where(std::string_view topic = {}) const noexcept {
    return {brokers, group, topic, plaintext && !been_up.load(std::memory_order_relaxed)};
  }
  [[nodiscard]] std::string last_failure() const;
};

/// Its owner and every block of records share it: records must be freed before the client. The last reference destroys
/// the client, on any thread. Thread-safe.
class Client {
 public:
  /// Throws ConfigError if librdkafka refuses the settings as a whole (for example, an unreadable certificate).
  /// `events` must outlive the client, unless forget_events() was called. librdkafka's queues set `wake_ups`, which are
  /// kept as long as the client.
  static std::shared_ptr<Client> open(Role role, const Settings& settings, std::shared_ptr<spdlog::logger> logger,
                                      ClientEvents* events = nullptr,
                                      std::vector<std::shared_ptr<WakeUpEvent>> wake_ups = {});
  /// Waits up to 5 s for librdkafka's threads to end. It leaves threads behind that have not ended by then, and logs
  /// it.
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  [[nodiscard]] rd_kafka_t* handle() const noexcept { return handle_; }
  [[nodiscard]] spdlog::logger& logger() const noexcept { return *state_->logger; }
  [[nodiscard]] Where where(std::string_view topic = {}) const noexcept { return state_->where(topic); }
  /// Whether a broker has answered at least once.
  [[nodiscard]] bool has_been_up() const noexcept { return state_->been_up.load(std::memory_order_relaxed); }
  /// Whether no broker answers now.
  [[nodiscard]] bool is_down() const noexcept { return state_->down.load(std::memory_order_relaxed); }
  /// Whether its records lie where they were received. A plugin may have put others in their place.
  [[nodiscard]] bool leaves_records_in_place() const noexcept { return in_place_; }
  /// No events from now on. Call it on the thread that polls.
  void forget_events() noexcept { state_->events = nullptr; }
  /// For a client that no thread polls: calls the error callback for its errors so far.
  void hear_failures() const noexcept { rd_kafka_poll(handle_, 0); }
  /// Whether this is the first call for this topic.
  [[nodiscard]] bool is_first_use(const std::string& topic) {
    const std::lock_guard lock(used_mutex_);
    return used_topics_.insert(topic).second;
  }
  /// The last failure, in librdkafka's words, for messages about timeouts.
  [[nodiscard]] std::string last_failure() const { return state_->last_failure(); }
  /// The error for a request without an answer. It names the failure of the connections, if there was one.
  [[nodiscard]] BrokerError no_answer(rd_kafka_resp_err_t code, std::string_view doing,
                                      std::string_view topic = {}) const;

 private:
  explicit Client(std::shared_ptr<ClientState> state) : state_(std::move(state)) {}
  void start(Role role, const Settings& settings);

  const std::shared_ptr<ClientState> state_;
  rd_kafka_t* handle_ = nullptr;
  bool in_place_ = false;
  std::mutex used_mutex_;
  std::set<std::string> used_topics_;  ///< for is_first_use()
};

}  // namespace turnstile::kafka
