#pragma once
// Members compare the digests of their states. Equal positions must have equal digests. A difference means that a
// member computes wrong, and no member can know which.

#include <deque>
#include <optional>
#include <string>

#include "tokens/state.hpp"

namespace turnstile::tokens {

class Checkpoints {
 public:
  /// Takes a digest each time the log has passed a multiple of `every`.
  explicit Checkpoints(Position every) : every_(every) {}

  /// Call it after each record was applied. Returns why the member must halt: another member has another state.
  std::optional<std::string> read(MemberId self, const State& state, Position position, const Event& event);
  /// The newest digest, once.
  std::optional<Checkpoint> take_unsent();
  /// A position up to which two members have had the same state.
  [[nodiscard]] Position agreed() const { return agreed_; }

 private:
  const Position every_;
  std::deque<Checkpoint> own_;  ///< of this member's state, oldest first
  bool is_sent_ = true;         ///< the newest of them
  Position agreed_ = kNowhere;
};

}  // namespace turnstile::tokens
