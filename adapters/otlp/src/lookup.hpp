#pragma once
// Looks a host's name up, with a time limit. getaddrinfo() has none: its thread may go on alone.

#include <memory>
#include <string>
#include <vector>

#include "deadline.hpp"

namespace turnstile::otlp {

/// Used by one thread.
class Lookup {
 public:
  explicit Lookup(std::string host) : host_(std::move(host)) {}

  /// The addresses of the host, as text. Empty: there is none, or no answer in time; `why` then tells which.
  std::vector<std::string> addresses(const Deadline& deadline, std::string& why);

 private:
  struct Answer;
  const std::string host_;
  std::shared_ptr<Answer> pending_;  ///< one that has not come yet
};

}  // namespace turnstile::otlp
