#include "turnstile/context.hpp"

#include <stdexcept>
#include <string>

namespace turnstile {

Transaction& Context::tx() const {
  if (fields_.tx == nullptr) {
    throw std::logic_error("handler '" + std::string(fields_.handler) +
                           "' asked for a transaction, but its topic's mode is none; add transactional() to its "
                           "decorators, or mode = \"transactional\" to the topic's configuration");
  }
  return *fields_.tx;
}

}  // namespace turnstile
