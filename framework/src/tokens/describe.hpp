#pragma once
// Describes events for a reader of the log.

#include <string>

#include "tokens/event.hpp"

namespace turnstile::tokens {

struct Description {
  std::string kind;     ///< "keep", "limit set"; "unknown" for a record that is no event
  std::string details;  ///< "psp: wants 16, busy 12, given back 40"; may be empty
};

Description describe(const Event& event);

}  // namespace turnstile::tokens
