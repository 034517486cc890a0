#pragma once
// Connections, opened when they are first needed, and lent for one transaction at a time.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "turnstile/config.hpp"
#include "wire/connection.hpp"
#include "wire/pipeline.hpp"

namespace turnstile::postgres {

/// A connection with its prepared statements.
struct Link {
  explicit Link(const PostgresSettings& settings, Cut cut = {})
      : connection(settings, std::move(cut)), pipeline(connection, settings.prepared_statements) {}
  /// Sets `lock_timeout` for the server's session, unless a pooler lends it to other clients. A statement locks its
  /// tables before it runs, so it cannot set the timeout for them itself (hazard: table-locks). Waits up to `patience`.
  /// Throws StoreUnavailable.
  void limit_lock_waits(std::chrono::milliseconds lock_timeout, std::chrono::milliseconds patience);

  Connection connection;
  Pipeline pipeline;
  std::thread::id user;  ///< its last user
  /// The timeouts of the server's session, for locks and for being idle in a transaction. They are set again after `until`,
  /// because the function of a trigger can change them unseen. Absent: they are not set.
  struct Timeouts {
    std::chrono::milliseconds lock{}, idle{};
    std::chrono::steady_clock::time_point until;
  };
  std::optional<Timeouts> timeouts;
  bool pooled = false;  ///< a pooler lends the server's session to other clients, too
  /// It was used before: if it turns out to be lost, a new connection is worth a try.
  bool used = false;
  std::int64_t generation = 0;  ///< of the pool, when it was opened
};

/// Thread-safe. It must outlive its loans.
class Pool {
 public:
  /// Its destructor returns the link, on any thread. A link that is lost or not idle is closed instead.
  class Loan {
   public:
    Loan() = default;
    Loan(Pool& pool, std::unique_ptr<Link> link)
        : pool_(&pool), link_(std::move(link)), borrower_(std::this_thread::get_id()) {}
    Loan(Loan&& other) noexcept : pool_(other.pool_), link_(std::move(other.link_)), borrower_(other.borrower_) {
      other.pool_ = nullptr;
    }
    Loan& operator=(Loan&& other) noexcept {
      if (this != &other) {
        reset();
        pool_ = other.pool_;
        link_ = std::move(other.link_);
        borrower_ = other.borrower_;
        other.pool_ = nullptr;
      }
      return *this;
    }
    ~Loan() { reset(); }
    void reset() noexcept {
      if (pool_) pool_->give_back(std::move(link_), borrower_);
      pool_ = nullptr;
    }
    explicit operator bool() const noexcept { return link_ != nullptr; }
    Link* operator->() const noexcept { return link_.get(); }
    Link& operator*() const noexcept { return *link_; }

   private:
    Pool* pool_ = nullptr;
    std::unique_ptr<Link> link_;
    std::thread::id borrower_;
  };

  /// Lends at most `most` at once; 0: no limit. While `cut` is true, take() throws StoreUnavailable.
  Pool(const PostgresSettings& settings, int most, Cut cut = {})
      : settings_(settings), most_(most), cut_(std::move(cut)) {}

  /// Waits while `most` are lent, up to 30 s, then throws StoreUnavailable. If the thread has a connection already (a
  /// handler that calls Inbox::once()), waiting threads may block each other. It then waits up to 5 s, and gets an
  /// Error that tells what to do. Throws StoreUnavailable if a new connection cannot be made.
  Loan take();
  /// Closes the idle connections, and the lent ones when they are returned. After a restart or a failover of the server
  /// all of them are lost, or lead to the wrong server.
  void renew() noexcept;
  /// `cut` has changed.
  void look_at_cut() noexcept;

 private:
  /// The link that this thread used last, if it is idle: this thread and that server process then run with warm
  /// processor caches. Otherwise, the last returned link.
  std::unique_ptr<Link> take_idle();
  [[nodiscard]] bool is_cut() const noexcept { return cut_ && *cut_; }
  void wait_for_room(std::unique_lock<std::mutex>& lock);
  void give_back(std::unique_ptr<Link> link, std::thread::id borrower) noexcept;

  const PostgresSettings settings_;
  const int most_;
  const Cut cut_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::thread::id> borrowers_;  ///< one for each lent connection
  std::int64_t generation_ = 0;
  std::vector<std::unique_ptr<Link>> idle_;
};

}  // namespace turnstile::postgres
