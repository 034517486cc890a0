#pragma once
// Connections, opened when they are first needed and lent for one transaction at a time.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "turnstile/config.hpp"
#include "wire/connection.hpp"
#include "wire/pipeline.hpp"

namespace turnstile::postgres {

/// A connection with what was prepared on it.
struct Link {
  explicit Link(const PostgresSettings& settings, Cut cut = {})
      : connection(settings, std::move(cut)), pipeline(connection, settings.prepared_statements) {}
  Connection connection;
  Pipeline pipeline;
  std::thread::id user;         ///< who had it last
  bool used = false;            ///< it has served before: when it turns out to be lost, a new one is worth a try
  std::int64_t generation = 0;  ///< of the pool, when it was opened
};

/// Thread-safe. Must outlive its loans.
class Pool {
 public:
  /// Gives the link back on destruction, on any thread; a link that is lost, or not idle, is closed instead.
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

  /// At most `most` at once; 0: no bound. While `cut` is true, take() throws StoreUnavailable.
  Pool(const PostgresSettings& settings, int most, Cut cut = {})
      : settings_(settings), most_(most), cut_(std::move(cut)) {}

  /// Waits while `most` are lent, for 30 s at most: then throws StoreUnavailable. A thread that has one already, as a handler's that calls
  /// Inbox::once(), may keep it from others that wait like itself: it waits for 5 s at most, and gets an Error that says what to do.
  /// Throws StoreUnavailable when a new one cannot be made.
  Loan take();
  /// Closes the idle ones, and those that are lent when they come back: after a restart or a failover of the server all of them are lost, or lead to
  /// the wrong one.
  void renew() noexcept;
  /// `cut` has changed.
  void look_at_cut() noexcept;

 private:
  /// The one that this thread had last, if it is there: the processors of this thread and of the server's process know one another then.
  /// Else the last one returned.
  std::unique_ptr<Link> take_idle();
  [[nodiscard]] bool is_cut() const noexcept { return cut_ && *cut_; }
  void wait_for_room(std::unique_lock<std::mutex>& lock);
  void give_back(std::unique_ptr<Link> link, std::thread::id borrower) noexcept;

  const PostgresSettings settings_;
  const int most_;
  const Cut cut_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::thread::id> borrowers_;  ///< one for each that is lent
  std::int64_t generation_ = 0;
  std::vector<std::unique_ptr<Link>> idle_;
};

}  // namespace turnstile::postgres
