#include "limits/limiter_troubles.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "turnstile/log.hpp"

namespace turnstile::postgres {

namespace {

constexpr std::chrono::milliseconds kShortestWait{50}, kLongestWait{1'000};

}  // namespace

Time LimiterTroubles::retry_at(const LimiterBook& book) const {
  const auto found = all_.find(&book);
  return found == all_.end() ? Time{} : found->second.retry_at;
}

LimiterTroubles::Trouble& LimiterTroubles::another(const LimiterBook& book, Time since) {
  Trouble& trouble = all_.try_emplace(&book, Trouble{.since = since}).first->second;
  trouble.backoff = std::clamp(2 * trouble.backoff, kShortestWait, kLongestWait);
  trouble.retry_at = LeaseClock::now() + trouble.backoff;
  return trouble;
}

void LimiterTroubles::rejected(const LimiterBook& book, Code code, std::string_view why) {
  Trouble& trouble = another(book, LeaseClock::now());
  if (trouble.told) return;
  trouble.told = true;
  log_error(*logger_, code,
            fmt::format("limiter '{}': it gets no new permits, because a statement of it fails; other limiters go on. "
                        "It is tried again: {}",
                        book.name(), why));
}

void LimiterTroubles::locked_out(const LimiterBook& book, Time sent, std::chrono::milliseconds patience,
                                 std::string_view why) {
  Trouble& trouble = another(book, sent);
  if (trouble.told || LeaseClock::now() - trouble.since < patience) return;
  trouble.told = true;
  log_warning(
      *logger_, Code::store_busy,
      fmt::format("limiter '{}': it gets no new permits, because another session has locked its rows in PostgreSQL "
                  "for {} ms; other limiters go on. It is tried again: {}",
                  book.name(), patience.count(), why));
}

void LimiterTroubles::succeeded(const LimiterBook& book) {
  const auto found = all_.find(&book);
  if (found == all_.end()) return;
  if (found->second.told)
    logger_->info("limiter '{}': its statements succeed again, and permits are given", book.name());
  all_.erase(found);
}

}  // namespace turnstile::postgres
