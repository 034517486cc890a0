#pragma once
// The two threads behind the limiters of one process: one speaks with the database, one looks at the clock, so that a permit
// whose time is over is told so while the other waits for an answer that does not come.

#include <spdlog/logger.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "limits/limiter_book.hpp"
#include "limits/limiter_statements.hpp"
#include "turnstile/config.hpp"
#include "wire/pool.hpp"

namespace turnstile::postgres {

/// Thread-safe. Its threads keep it alive until stop().
class LimiterWorker : public std::enable_shared_from_this<LimiterWorker> {
 public:
  LimiterWorker(const PostgresSettings& settings, const LimiterPace& pace, std::string holder,
                std::shared_ptr<spdlog::logger> logger);
  void start();
  /// Gives everything back, which takes 2 s at most. Called once, by whoever lets go last, on any thread, also on one of the two.
  void stop() noexcept;
  /// Throws Error when the name is known with another limit.
  std::shared_ptr<LimiterBook> open(const std::string& name, std::int64_t limit);

 private:
  using Books = std::vector<std::shared_ptr<LimiterBook>>;

  void ring();
  [[nodiscard]] Books books();
  void speak();
  void watch();

  // On the thread that speaks.
  [[nodiscard]] Time due();
  void round();
  void connect();
  void disconnect() noexcept;
  void renew();
  void visit(LimiterBook& book);
  LimiterView read_view(LimiterBook& book, const Result& rows);
  void tell_change(const LimiterBook& book, const LimiterView& view);
  void leave() noexcept;
  template <class Fill>
  std::vector<Result> ask(Fill fill, bool writes = true);
  void failed(const std::string& why);
  void answered();
  void tell_lost(const LimiterBook& book, std::int64_t in_use, const char* why);

  const PostgresSettings settings_;
  const LimiterPace pace_;
  const std::string holder_;
  const std::shared_ptr<spdlog::logger> logger_;
  const LimiterStatements sql_;

  std::mutex mutex_;  ///< of what follows
  std::condition_variable rung_;
  std::condition_variable clock_changed_;
  bool has_rung_ = false;
  bool stopping_ = false;
  bool ended_ = false;         ///< the thread that speaks has
  Time end_at_ = Time::max();  ///< once it is to stop: when nobody waits for the database any more
  std::map<std::string, std::shared_ptr<LimiterBook>> by_name_;
  int socket_ = -1;    ///< while an answer is waited for
  Time give_up_at_{};  ///< then it is cut

  const std::shared_ptr<std::atomic<bool>> cut_ = std::make_shared<std::atomic<bool>>(false);

  // Of the thread that speaks alone.
  std::unique_ptr<Link> link_;
  Time renewed_at_{};     ///< when the last renewal was sent
  bool all_anew_ = true;  ///< what the database has of us is not known
  bool away_ = false;
  Time retry_at_{};
  std::chrono::milliseconds backoff_{0};

  std::thread speaking_, watching_;
};

}  // namespace turnstile::postgres
