#pragma once
// The callers that wait for the permits of a pool. Urgent ones are first; the others are served in turn, by party. Not
// thread-safe: the pool's lock protects it.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <stop_token>

#include "tokens/order.hpp"

namespace turnstile::detail {

/// Permits that are taken together and released together.
struct TakenPermits {
  std::uint64_t token = 0;  ///< 0: none
  std::stop_token lost;     ///< set when they are lost
  explicit operator bool() const { return token != 0; }
};

class PermitLine {
 public:
  using Count = tokens::Count;
  /// A user of the limiter in this process: a topic of the consumer, or a TokenService. Waiting users are served in
  /// turn, permit for permit, however many threads each of them has. Party 0 always exists.
  using Party = std::uint32_t;
  struct Waiter {
    std::uint64_t number = 0;
    Count count = 1;
    bool urgent = false;
    std::function<void(TakenPermits)> deliver{};  ///< either this or `wake`
    std::function<void()> wake{};
  };
  using Line = std::deque<Waiter>;
  struct Queue {
    Line urgent, normal;
    std::uint64_t served = 0;  ///< permits served, without urgent ones; on the scale of served_
  };
  using Queues = std::map<Party, Queue>;
  struct Place {
    Party party = 0;
    Queue* queue = nullptr;
    Line* line = nullptr;
    Line::iterator at{};
    explicit operator bool() const { return queue != nullptr; }
  };

  PermitLine() { queues_[0]; }

  /// The party's number contains it, so that no lock is needed to read it.
  [[nodiscard]] static bool outlives_fence(Party party) { return party % 2 == 1; }
  Party add_party(bool outlives_fence);
  /// Destroy the result without the lock: it has the callbacks of the party's waiters.
  [[nodiscard]] Queues::node_type remove_party(Party party) { return queues_.extract(party); }

  /// Returns the waiter's number.
  std::uint64_t add(Waiter waiter, Party party);
  [[nodiscard]] Place find(std::uint64_t waiter);
  /// The oldest urgent request; otherwise the oldest of the party that has had the fewest permits. Requests for more
  /// than `most` are skipped. `admits_outliving`: whether parties that outlive a fence may have permits.
  [[nodiscard]] Place next_served(Count most, bool admits_outliving);
  /// The waiter gets its permits: its party goes back in the order of parties, unless the request is urgent.
  void count_as_served(const Place& place);
  Waiter remove(const Place& place);
  /// Calls each(party, waiter).
  template <class Each>
  void each_waiter(Each each) const {
    for (const auto& [party, queue] : queues_) {
      for (const Line* line : {&queue.urgent, &queue.normal}) {
        for (const Waiter& waiter : *line) each(party, waiter);
      }
    }
  }

 private:
  [[nodiscard]] std::uint64_t turn_of(const Queue& queue) const;

  Queues queues_;
  Party last_party_ = 0;
  std::uint64_t last_waiter_ = 0;
  std::uint64_t served_ = 0;  ///< the count of the queue that was served last, before it was served
};

}  // namespace turnstile::detail
