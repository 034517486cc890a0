#pragma once
// The thread that sends what transactions have published: takes shards of the outbox, sends what waits in them, and removes what the
// broker has taken. When it dies in between, another one sends the same again, with the same message-id.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/run_log.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/outbox.hpp"

namespace turnstile {

class Relay {
 public:
  using OpenSender = std::function<std::unique_ptr<BrokerSender>()>;
  struct Settings {
    std::string owner;                          ///< of this run of this process, and of no other
    std::chrono::milliseconds lease{10'000};    ///< of its shards
    std::chrono::milliseconds look_every{200};  ///< what other processes have published is found so late at most, ...
    /// ... but while nobody publishes anything it is asleep: it has no shards and no sender, and looks so often only.
    std::chrono::milliseconds look_asleep_every{10'000};
    std::chrono::milliseconds asleep_after{60'000};
    std::size_t batch = 1'000;               ///< most records sent at once
    std::size_t batch_bytes = kOutboxBytes;  ///< and about so many bytes of them
  };
  Relay(Settings settings, std::shared_ptr<Outbox> outbox, OpenSender open_sender,
        std::shared_ptr<const RunLog> run_log);
  ~Relay() { stop({}); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void start();
  /// Sends what is there, at most for so long; gives up the rest, and the shards. Nothing happens afterwards.
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(2));
  /// Something was published in this process. Cheap; from any thread, at any time.
  void ring();

 private:
  using Time = LeaseClock::time_point;
  void run();
  void step(Time now);
  bool wake_up(Time now, bool rung);
  void fall_asleep();
  std::size_t send_some();
  void send_alone(const OutboxRecord& record);
  void put_aside(const OutboxRecord& record, const std::string& why);
  void wait();
  void told(bool well, const std::string& why);

  const Settings settings_;
  const std::shared_ptr<Outbox> outbox_;
  const OpenSender open_sender_;
  const std::shared_ptr<const RunLog> run_log_;
  // The thread's own:
  bool awake_ = false;
  bool well_ = true;
  bool found_some_ = false;
  std::vector<OutboxShard> shards_;
  Time keep_again_{}, found_at_{};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::unique_ptr<BrokerSender> sender_;  ///< replaced by the thread, cancelled by the destructor
  bool rung_ = false;
  bool finishing_ = false;  ///< ends when nothing is left
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace turnstile
