#pragma once
// The limits that callers set for all members of a domain, until the log has accepted them.

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "tokens/apply.hpp"
#include "tokens/order.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

struct LimitChange {
  std::string limiter;
  std::optional<std::int64_t> limit;
  tokens::Event event{};
  bool sent = false;
  tokens::Micros send_again_at = 0;  ///< after it was not accepted
  bool done = false, not_allowed = false;
  bool elsewhere = false;  ///< the limiter's home is another part
  bool over = false;       ///< accepted, or it never will be
};

/// Not thread-safe.
class LimitChanges {
 public:
  void add(std::shared_ptr<LimitChange> change) { changes_.push_back(std::move(change)); }
  void remove(const std::shared_ptr<LimitChange>& change) { std::erase(changes_, change); }
  /// Appends each change that waits, unless the part is not open yet.
  void send(ports::TokenLog& log, const tokens::State& state, tokens::Micros now);
  /// What was sent may not have been written: it is sent again.
  void repeat();
  /// Call it after each record was applied.
  void read(const tokens::Event& event, const tokens::Effects& effects, const tokens::State& state, tokens::Micros now);

 private:
  std::deque<std::shared_ptr<LimitChange>> changes_;
};

}  // namespace turnstile::detail
