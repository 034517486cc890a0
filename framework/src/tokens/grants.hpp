#pragma once
// Grants the free permits of a limiter to the members below their shares.

#include <vector>

#include "tokens/shares.hpp"
#include "tokens/state.hpp"

namespace turnstile::tokens {

class Grants {
 public:
  /// `at`: the position of the event that changes the limiter.
  explicit Grants(Position at) : at_(at) {}

  /// Computes the shares of the limiter's members, and grants free permits.
  void settle(LimiterEntry& limiter);

 private:
  const Position at_;
  std::vector<Holding*> line_;
  std::vector<Wish> wishes_;
};

}  // namespace turnstile::tokens
