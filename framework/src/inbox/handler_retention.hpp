#pragma once
// How long the ids of a handler are kept, and since when they are all stored.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "turnstile/ports/retention.hpp"

namespace turnstile::detail {

/// The ids of a handler: how long this process needs them, and how long the store keeps them.
class HandlerRetention {
 public:
  /// The duration that follows from the topic; in it, absent means forever. Absent: still unknown.
  struct Needed {
    std::optional<std::chrono::seconds> keep_for;
  };
  using Ask = std::function<std::optional<Needed>()>;

  /// Declares the duration to the store. `ask`: for a duration that is unknown, and therefore forever until learn().
  /// Throws what keep_ids() throws.
  HandlerRetention(ports::Retention& retention, HandlerId handler, std::string name,
                   std::optional<std::chrono::seconds> keep_for, Ask ask = {})
      : handler_(handler), name_(std::move(name)), ask_(std::move(ask)) {
    keep_for_.store(number(keep_for), std::memory_order_relaxed);
    declare(retention);
  }

  /// Asks for the duration, if it is unknown. Returns whether it has become known: the next declare() declares it. One
  /// thread at a time may call it. Throws what `ask` throws.
  bool learn() {
    if (!ask_) return false;
    const auto needed = ask_();
    if (!needed) return false;
    ask_ = nullptr;
    keep_for_.store(number(needed->keep_for), std::memory_order_relaxed);
    return true;
  }

  /// Declares the duration, and stores the answer. Thread-safe.
  void declare(ports::Retention& retention) {
    const KeptIds kept = retention.keep_ids(handler_, keep_for());
    kept_for_.store(number(kept.kept_for), std::memory_order_relaxed);
    if (!kept.all_since) return;
    const std::int64_t since = kept.all_since->time_since_epoch().count();
    auto known = all_since_.load(std::memory_order_relaxed);  // the highest, because answers may come out of order
    while (known < since && !all_since_.compare_exchange_weak(known, since, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  /// Absent: forever.
  [[nodiscard]] std::optional<std::chrono::seconds> keep_for() const noexcept { return time(keep_for_); }
  /// The longest declared duration of any process. Absent: forever.
  [[nodiscard]] std::optional<std::chrono::seconds> kept_for() const noexcept { return time(kept_for_); }
  /// Ids stored before this time may be deleted, so an older message may have taken effect. The value may be some
  /// minutes old. Thread-safe.
  [[nodiscard]] Timestamp all_since() const noexcept {
    return Timestamp(std::chrono::milliseconds(all_since_.load(std::memory_order_relaxed)));
  }
  /// Ids stored before this time may be deleted already, by this process's clock plus an hour: ask the store again.
  /// Declarations of other processes lapse when they are not repeated. This process's declaration stays in effect while
  /// it runs. Thread-safe.
  [[nodiscard]] Timestamp horizon_estimate() const noexcept {
    const auto needed = keep_for();
    if (!needed) return all_since();
    const auto now = std::chrono::time_point_cast<Timestamp::duration>(std::chrono::system_clock::now());
    return std::max(all_since(), now - *needed + std::chrono::hours(1));
  }

 private:
  static constexpr std::int64_t kForEver = -1;
  static std::int64_t number(const std::optional<std::chrono::seconds>& time) {
    return time ? time->count() : kForEver;
  }
  static std::optional<std::chrono::seconds> time(const std::atomic<std::int64_t>& number) noexcept {
    const auto seconds = number.load(std::memory_order_relaxed);
    return seconds == kForEver ? std::nullopt : std::optional(std::chrono::seconds(seconds));
  }

  const HandlerId handler_;
  const std::string name_;
  Ask ask_;  ///< null: the duration is known
  std::atomic<std::int64_t> keep_for_{kForEver};
  std::atomic<std::int64_t> kept_for_{kForEver};
  std::atomic<std::int64_t> all_since_{Timestamp::min().time_since_epoch().count()};
};

}  // namespace turnstile::detail
