#pragma once
// The thread that sends published messages. It takes shards of the outbox, sends their records, and removes the records
// that the broker has accepted. If it dies in between, another relay sends the same records again, with the same
// message-id.

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "support/run_log.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/outbox.hpp"

namespace turnstile::detail {

class Relay {
 public:
  using OpenSender = std::function<std::unique_ptr<ports::BrokerSender>()>;
  struct Settings {
    std::string owner;                        ///< of this run of this process only
    std::chrono::milliseconds lease{10'000};  ///< of its shards
    /// The longest delay until it finds messages that other processes have published.
    std::chrono::milliseconds look_every{200};
    /// If no message was published for a while, the relay sleeps: it has no shards and no sender, and checks only at
    /// this interval.
    std::chrono::milliseconds look_asleep_every{10'000};
    std::chrono::milliseconds asleep_after{60'000};
    std::size_t batch = 4'000;                      ///< the largest number of records in a send
    std::size_t batch_bytes = ports::kOutboxBytes;  ///< approximate bytes in a send
  };
  Relay(Settings settings, std::shared_ptr<ports::Outbox> outbox, OpenSender open_sender,
        std::shared_ptr<const RunLog> run_log);
  ~Relay() { stop({}); }
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  void start();
  /// Sends the waiting messages for up to `grace`. Then it gives up the rest, and its shards. Nothing happens
  /// afterwards.
  void stop(std::chrono::milliseconds grace = std::chrono::seconds(2));
  /// A message was published in this process. Cheap; any thread may call it at any time.
  void ring();
  /// As ring(), for a message that is stored, and is due after this time.
  void ring_when_due(std::chrono::milliseconds after);

 private:
  using Time = LeaseClock::time_point;
  void run();
  void step(Time now);
  bool wake_up(Time now, bool rung);
  void fall_asleep();
  std::size_t send_some();
  std::vector<ports::BrokerSender::Fate> send(const std::vector<const ports::OutboxRecord*>& records);
  void remove(std::span<const ports::OutboxRecord* const> sent);
  void put_aside(const ports::OutboxRecord& record, const std::string& why);
  void look_for_due(Time now);
  void wait();
  void told(bool well, const std::string& why);

  const Settings settings_;
  const std::shared_ptr<ports::Outbox> outbox_;
  const OpenSender open_sender_;
  const std::shared_ptr<const RunLog> run_log_;
  // Used only by the thread:
  bool awake_ = false;
  bool well_ = true;
  bool found_some_ = false;
  std::optional<std::chrono::milliseconds> next_due_{};  ///< when it looked last
  std::vector<ports::OutboxShard> shards_;
  /// What was sent in the last round, and may still be there: remove() leaves the entry of a stored retry that a
  /// transaction has locked, for example that of the handler, and if it fails, it leaves all. It is removed later, and
  /// not sent again. The record's message-id tells it from another one that got its number in a database that lost its
  /// last transactions.
  using Sent = std::tuple<ports::OutboxShard, std::int64_t, std::int64_t, std::string>;  // shard, id, due, message-id
  static Sent as_sent(const ports::OutboxRecord& record);
  std::set<Sent> sent_;
  Time keep_again_{}, found_at_{}, look_for_due_at_{};
  std::chrono::milliseconds due_pause_{0};  ///< between two looks for due messages

  std::mutex mutex_;
  std::condition_variable wake_;
  std::unique_ptr<ports::BrokerSender> sender_;  ///< replaced by the thread, cancelled by stop()
  bool rung_ = false;
  Time rung_due_at_ = Time::max();
  bool finishing_ = false;  ///< ends when no message is left
  bool stopping_ = false;
  bool ended_ = false;
  std::thread thread_;
};

}  // namespace turnstile::detail
