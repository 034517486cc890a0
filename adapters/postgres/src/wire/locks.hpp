#pragma once
// The sessions that block a statement: the server's error after a lock timeout names neither table nor session.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "turnstile/config.hpp"
#include "wire/connection.hpp"

namespace turnstile::postgres {

/// How the statement wanted to use the tables.
enum class Wanted : std::uint8_t {
  rows,    ///< to read or write them
  tables,  ///< to change their definition, which excludes all other users
};

/// Sessions that a statement ends when they block it.
struct StuckSessions {
  std::string blocked;  ///< the statement's text; sessions that block another statement are left alone
  /// Ended if they have sent nothing for so long, wait for no lock, and belong to the same role and database.
  std::chrono::milliseconds after{};
  std::function<void(const std::string& session)> on_ended;  ///< for each; must not throw
};

/// Finds them while the statement waits, because afterwards the server no longer knows them. If an answer takes long,
/// it opens a connection of its own. It throws no error of the server.
class LockWatch {
 public:
  /// Watches `connection` until the destructor, and must not outlive it, or `settings`. The statements wait for a lock
  /// up to `lock_timeout`. `cut` ends its own waits.
  LockWatch(const PostgresSettings& settings, Connection& connection, std::chrono::milliseconds lock_timeout,
            Cut cut = {});
  ~LockWatch();
  LockWatch(const LockWatch&) = delete;
  LockWatch& operator=(const LockWatch&) = delete;

  /// From here on looks after each `pause` of silence, and passes on the sessions that it finds, as a sentence.
  void tell(std::chrono::milliseconds pause, std::function<void(const std::string&)> told);
  /// From here on also ends stuck sessions. Behind a pooler it cannot, because it does not know its own session.
  void end(StuckSessions stuck) { stuck_ = std::move(stuck); }
  /// For the message of a lock timeout: ": turnstile.inbox is locked by pid 4711 (psql as app, idle in transaction for
  /// 90 s). End that transaction: …". If it saw no session wait (behind a pooler it cannot), it names those that use
  /// the schema's tables now as candidates. Without any, it names the views to look at.
  [[nodiscard]] std::string holders(Wanted wanted);

 private:
  Connection::Looked look() noexcept;
  /// Whether it ended a session that it had not ended before.
  bool end_stuck();

  /// Opens its own connection, unless it has one.
  Connection& own();

  const PostgresSettings& settings_;
  Connection& watched_;
  Cut cut_;
  std::unique_ptr<Connection> own_;
  std::chrono::milliseconds pause_;
  std::chrono::milliseconds soon_;  ///< the pause after sessions were ended: others may block the statement next
  bool failed_ = false;             ///< it could not ask the server, and does not try again
  std::string seen_;
  std::function<void(const std::string&)> told_;
  std::optional<StuckSessions> stuck_;
  std::set<std::string> ended_;  ///< pids; they may take some time to end
};

}  // namespace turnstile::postgres
