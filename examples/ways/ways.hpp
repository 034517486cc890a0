#pragma once
// Ways to take a payment from an account when two processes get it: two wrong ones, and several that are known to be
// right.

#include <memory>
#include <mutex>
#include <pqxx/connection>
#include <string>
#include <string_view>
#include <turnstile/ports/store.hpp>
#include <vector>

#include "shared.hpp"

inline constexpr const char* kSchema = "turnstile_ways";
inline constexpr int kPayments = 20;
inline constexpr int kCents = 100;       ///< each payment
inline constexpr int kBalance = 10'000;  ///< of each account, at first

/// Both processes get it, as from a browser that sends a form twice, or as a message that is delivered twice.
struct Payment {
  std::string account;
  int number = 0;
  std::string token;     ///< for the one-time token
  int version_read = 0;  ///< for the optimistic lock: the account when the payment was made
  int balance_read = 0;
  [[nodiscard]] std::string id() const { return account + "-" + std::to_string(number); }
};

/// One of the two processes.
struct Process {
  Process(const std::string& url, std::size_t rank, Shared& shared);

  pqxx::connection connection;
  Shared& shared;
  std::mutex mutex;  ///< for the in-process lock
  std::shared_ptr<turnstile::ports::Store> store;
  std::unique_ptr<turnstile::ports::InboxSession> session;
  turnstile::ports::InboxScope scope;
};

struct Way {
  const char* name;  ///< also of its account
  /// Whether the balance must be right at the end; for the wrong ways it must be wrong.
  bool right;
  bool (*pay)(Process& me, const Payment& payment);  ///< whether this process applied it
};

/// In the order of the table.
const std::vector<Way>& ways();
