#pragma once
// The limiters whose statements fail. Each waits by itself, so that the others go on, and is reported once.

#include <spdlog/logger.h>

#include <chrono>
#include <map>
#include <memory>
#include <string_view>

#include "limits/limiter_book.hpp"
#include "turnstile/code.hpp"

namespace turnstile::postgres {

/// For one thread.
class LimiterTroubles {
 public:
  explicit LimiterTroubles(std::shared_ptr<spdlog::logger> logger) : logger_(std::move(logger)) {}
  /// Not before then. Time{}: at any time.
  [[nodiscard]] Time retry_at(const LimiterBook& book) const;
  /// PostgreSQL rejects a statement of this limiter.
  void rejected(const LimiterBook& book, Code code, std::string_view why);
  /// A lock that this limiter needs was not free. `sent`: when the statement was sent. It is reported once it has
  /// lasted for `patience`.
  void locked_out(const LimiterBook& book, Time sent, std::chrono::milliseconds patience, std::string_view why);
  void succeeded(const LimiterBook& book);

 private:
  struct Trouble {
    std::chrono::milliseconds backoff{0};
    Time since{};
    Time retry_at{};
    bool told = false;
  };
  Trouble& another(const LimiterBook& book, Time since);

  const std::shared_ptr<spdlog::logger> logger_;
  std::map<const LimiterBook*, Trouble> all_;
};

}  // namespace turnstile::postgres
