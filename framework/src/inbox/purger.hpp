#pragma once
// Says again and again how long this process needs the ids of its handlers, and takes its turn at deleting those that nobody needs.
// On a thread of its own: a slow step delays nothing else.

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

/// The ids of one handler, as this process needs them and as the store keeps them.
class Retention {
 public:
  /// Says it to the store; throws what keep_ids() throws.
  Retention(InboxStore& store, HandlerId handler, std::string name, std::optional<std::chrono::seconds> keep_for)
      : handler_(handler), name_(std::move(name)), keep_for_(keep_for) {
    declare(store);
  }

  /// Says it, and hears how it is now. Thread-safe.
  void declare(InboxStore& store) {
    const KeptIds kept = store.keep_ids(handler_, keep_for_);
    kept_for_.store(kept.kept_for ? kept.kept_for->count() : kForEver, std::memory_order_relaxed);
    if (!kept.all_since) return;
    const std::int64_t since = kept.all_since->time_since_epoch().count();
    auto known = all_since_.load(std::memory_order_relaxed);  // the highest of all answers: they may come out of order
    while (known < since && !all_since_.compare_exchange_weak(known, since, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Nothing: for ever.
  [[nodiscard]] const std::optional<std::chrono::seconds>& keep_for() const noexcept { return keep_for_; }
  /// By the longest that anybody has said.
  [[nodiscard]] std::optional<std::chrono::seconds> kept_for() const noexcept {
    const auto seconds = kept_for_.load(std::memory_order_relaxed);
    return seconds == kForEver ? std::nullopt : std::optional(std::chrono::seconds(seconds));
  }
  /// Ids that were taken in before may be gone, so that a message from before may have taken effect. Some minutes old. Thread-safe.
  [[nodiscard]] Timestamp all_since() const noexcept {
    return Timestamp(std::chrono::milliseconds(all_since_.load(std::memory_order_relaxed)));
  }
  /// Ids from before may be gone already, by this process's clock within an hour: ask again. What others have said to need lapses when they
  /// say it no more; what this process says holds while it runs. Thread-safe.
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
    bool purge = true;                             ///< off: says how long ids are needed, and leaves deleting to others
    std::int64_t most = 1'000;                     ///< ids in one transaction: a few milliseconds of the server's time
    std::chrono::milliseconds say_every{600'000};  ///< the store lets what was said hold for an hour at least
    std::chrono::milliseconds look_first{
        5'000};  ///< so late at most after the start: also who runs for a minute takes its turn
    std::chrono::milliseconds look_every{60'000};    ///< whether ids are due, when none were
    std::shared_ptr<Producers> producers{};          ///< whose sessions may expire; null: nobody's
    std::chrono::milliseconds expire_every{10'000};  ///< as in "Patterns of Distributed Systems" (Idempotent Receiver)
  };
  Purger(Settings settings, std::vector<std::shared_ptr<Retention>> handlers, std::shared_ptr<InboxStore> store,
         std::shared_ptr<const RunLog> run_log);
  /// Waits for the step that is under way.
  ~Purger();
  Purger(const Purger&) = delete;
  Purger& operator=(const Purger&) = delete;

 private:
  void run();
  void say();
  void expire();
  /// How long to rest now.
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
  std::int64_t deleted_ = 0;                                         ///< since it was last told
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace turnstile
