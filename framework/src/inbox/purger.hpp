#pragma once
// Declares at intervals how long this process needs the ids of its handlers, and takes part in deleting ids that no
// process needs. It has a thread of its own, so that a slow step delays nothing else.

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/run_log.hpp"
#include "turnstile/ports/inbox.hpp"

namespace turnstile {

/// The ids of a handler: how long this process needs them, and how long the store keeps them.
class Retention {
 public:
  /// Declares the duration to the store. Throws what keep_ids() throws.
  Retention(InboxStore& store, HandlerId handler, std::string name, std::optional<std::chrono::seconds> keep_for)
      : handler_(handler), name_(std::move(name)), keep_for_(keep_for) {
    declare(store);
  }

  /// Declares the duration, and stores the answer. Thread-safe.
  void declare(InboxStore& store) {
    const KeptIds kept = store.keep_ids(handler_, keep_for_);
    kept_for_.store(kept.kept_for ? kept.kept_for->count() : kForEver, std::memory_order_relaxed);
    if (!kept.all_since) return;
    const std::int64_t since = kept.all_since->time_since_epoch().count();
    auto known = all_since_.load(std::memory_order_relaxed);  // the highest, because answers may come out of order
    while (known < since && !all_since_.compare_exchange_weak(known, since, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Absent: forever.
  [[nodiscard]] const std::optional<std::chrono::seconds>& keep_for() const noexcept { return keep_for_; }
  /// The longest declared duration of any process. Absent: forever.
  [[nodiscard]] std::optional<std::chrono::seconds> kept_for() const noexcept {
    const auto seconds = kept_for_.load(std::memory_order_relaxed);
    return seconds == kForEver ? std::nullopt : std::optional(std::chrono::seconds(seconds));
  }
  /// Ids stored before this time may be deleted, so an older message may have taken effect. The value may be some
  /// minutes old. Thread-safe.
  [[nodiscard]] Timestamp all_since() const noexcept {
    return Timestamp(std::chrono::milliseconds(all_since_.load(std::memory_order_relaxed)));
  }
  /// Ids stored before this time may be deleted already, by this process's clock plus an hour: ask the store again.
  /// Declarations of other processes lapse when they are not repeated. This process's declaration stays in effect while
  /// it runs. Thread-safe.
  [[nodiscard]] Timestamp horizon_estimate() const noexcept {
    if (!keep_for_) return all_since();
    const auto now = std::chrono::time_point_cast<Timestamp::duration>(std::chrono::system_clock::now());
    return std::max(all_since(), now - *keep_for_ + std::chrono::hours(1));
  }

 private:
  const HandlerId handler_;
  const std::string name_;
  const std::optional<std::chrono::seconds> keep_for_;
  static constexpr std::int64_t kForEver = -1;
  std::atomic<std::int64_t> kept_for_{kForEver};
  std::atomic<std::int64_t> all_since_{Timestamp::min().time_since_epoch().count()};
};

class Purger {
 public:
  struct Settings {
    bool purge = true;                             ///< false: only declares durations; other processes delete
    std::int64_t most = 1'000;                     ///< in one transaction: a few milliseconds of the server's time
    std::chrono::milliseconds say_every{600'000};  ///< the store keeps a declaration for at least an hour
    /// The longest delay of the first step, so that a process that runs only for a minute also takes part.
    std::chrono::milliseconds look_first{5'000};
    std::chrono::milliseconds look_every{60'000};    ///< how often to check for due ids if there were none
    std::shared_ptr<Producers> producers{};          ///< producers with sessions that may expire; null: none
    std::chrono::milliseconds expire_every{10'000};  ///< as in "Patterns of Distributed Systems" (Idempotent Receiver)
  };
  Purger(Settings settings, std::vector<std::shared_ptr<Retention>> handlers, std::shared_ptr<InboxStore> store,
         std::shared_ptr<const RunLog> run_log);
  /// Waits for the current step.
  ~Purger();
  Purger(const Purger&) = delete;
  Purger& operator=(const Purger&) = delete;

 private:
  void run();
  void say();
  void expire();
  /// Deletes old ids. Returns how long to rest.
  std::chrono::milliseconds clean();
  std::chrono::milliseconds any_up_to(std::chrono::milliseconds most);
  std::chrono::milliseconds some(std::chrono::milliseconds about) { return about - any_up_to(about / 2); }
  template <class Work>
  bool attempt(int& failures, Work work);

  const Settings settings_;
  const std::vector<std::shared_ptr<Retention>> handlers_;
  const std::shared_ptr<InboxStore> store_;
  const std::shared_ptr<const RunLog> run_log_;
  std::minstd_rand random_;
  int say_failures_ = 0, clean_failures_ = 0, expire_failures_ = 0;  ///< in a row
  std::int64_t deleted_ = 0;                                         ///< since the last report
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace turnstile
