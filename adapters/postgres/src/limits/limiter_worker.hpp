#pragma once
// The two threads behind the limiters of a process. One queries the database. The other watches the clock, so that the
// end of a permit is reported even while the first waits for an answer.

#include <spdlog/logger.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "limits/limiter_book.hpp"
#include "limits/limiter_statements.hpp"
#include "limits/limiter_troubles.hpp"
#include "turnstile/code.hpp"
#include "turnstile/config.hpp"
#include "wire/pool.hpp"

namespace turnstile::postgres {

/// Thread-safe. Its threads keep it alive until stop().
class LimiterWorker : public std::enable_shared_from_this<LimiterWorker> {
 public:
  LimiterWorker(const PostgresSettings& settings, const LimiterPace& pace, std::string holder,
                std::shared_ptr<spdlog::logger> logger);
  void start();
  /// Returns everything, which takes up to 2 s. The last reference calls it once, on any thread, including these two.
  void stop() noexcept;
  /// Throws Error if the name is known with another limit.
  std::shared_ptr<LimiterBook> open(const std::string& name, std::int64_t limit);

 private:
  using Books = std::vector<std::shared_ptr<LimiterBook>>;

  void ring();
  [[nodiscard]] Books books();
  void speak();
  void watch();

  // On the thread that queries.
  [[nodiscard]] Time due();
  void round();
  void connect();
  void disconnect() noexcept;
  void renew();
  [[nodiscard]] Time due(const LimiterBook& book) const;
  [[nodiscard]] bool is_renewal_due() const;
  void attend(LimiterBook& book);
  void visit(LimiterBook& book);
  void queue_life(Pipeline& pipeline);
  void queue_declaration(Pipeline& pipeline, const LimiterBook& book);
  void queue_settling(Pipeline& pipeline, const LimiterBook& book);
  void queue_errand(Pipeline& pipeline, const std::optional<LimiterView>& known, const LimiterErrand& errand);
  LimiterView read_view(LimiterBook& book, const Result& rows);
  void tell_change(const LimiterBook& book, const LimiterView& view);
  void leave() noexcept;
  template <class Fill>
  std::vector<Result> ask(Fill fill, std::optional<std::chrono::milliseconds> lock_wait);
  [[nodiscard]] std::chrono::milliseconds longest_lock_wait() const;
  void not_renewed(const char* why);
  void failed(Code code, const std::string& why);
  void answered();
  void tell_lost(const LimiterBook& book, std::int64_t in_use, const char* why);

  const PostgresSettings settings_;
  const LimiterPace pace_;
  const std::string holder_;
  const std::shared_ptr<spdlog::logger> logger_;
  const LimiterStatements sql_;

  std::mutex mutex_;  ///< protects the following members
  std::condition_variable rung_;
  std::condition_variable clock_changed_;
  bool has_rung_ = false;
  bool stopping_ = false;
  bool ended_ = false;  ///< the querying thread has ended
  /// After stop(): when no thread waits for the database any more.
  Time end_at_ = Time::max();
  std::map<std::string, std::shared_ptr<LimiterBook>> by_name_;
  int socket_ = -1;    ///< while the thread waits for an answer
  Time give_up_at_{};  ///< then the socket is shut down

  const std::shared_ptr<std::atomic<bool>> cut_ = std::make_shared<std::atomic<bool>>(false);

  // Used only by the querying thread.
  std::unique_ptr<Link> link_;
  Time renewed_at_ = LeaseClock::now();  ///< when the last renewal was sent
  bool told_not_renewed_ = false;
  bool all_anew_ = true;  ///< the database's data about this process is unknown
  /// Whose values the database has lost, in a failover, or because this process was stopped for long.
  std::set<const LimiterBook*> undeclared_;
  LimiterTroubles troubles_;
  bool away_ = false;
  Time retry_at_{};
  std::chrono::milliseconds backoff_{0};

  std::thread speaking_, watching_;
};

}  // namespace turnstile::postgres
