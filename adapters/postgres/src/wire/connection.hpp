#pragma once
// One connection, made by libpq and never reconnected: a lost one is thrown away (hazard: silent-reconnect).

#include <libpq-events.h>
#include <libpq-fe.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/config.hpp"
#include "wire/errors.hpp"

namespace turnstile::postgres {

/// Where the settings lead, without the password: "localhost:5432, database app, user app".
std::string describe_target(const PostgresSettings& settings);
/// Throws ConfigError with the key "postgres.url" or "postgres.schema", never showing the URL.
void check_settings(const PostgresSettings& settings);

/// How long a statement of the adapter's own may stay unanswered, where it waits for locks no longer than `lock_timeout`.
inline std::chrono::milliseconds answer_within(const PostgresSettings& settings,
                                               std::chrono::milliseconds lock_timeout) {
  return 2 * settings.connect_timeout + lock_timeout;
}

/// True: nobody waits for the server any more (InboxStore::cut). Null: never.
using Cut = std::shared_ptr<const std::atomic<bool>>;

/// Used by one thread at a time.
class Connection {
 public:
  /// Waits at most settings.connect_timeout, or until `cut`. Throws StoreUnavailable, saying which host, database and user.
  explicit Connection(const PostgresSettings& settings, Cut cut = {});
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] PGconn* raw() const noexcept { return connection_; }
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] std::string user() const;
  /// The settings that a client can give when it connects, as the server or a pooler confirmed them: names and values in turn.
  [[nodiscard]] const std::vector<std::string>& client_settings() const noexcept { return client_settings_; }
  /// No transaction open, nothing on its way, not condemned: may be lent to somebody else.
  [[nodiscard]] bool idle() const noexcept;
  /// It leads to a server that cannot serve us: not to be used again.
  void condemn() noexcept { condemned_ = true; }

  /// How long the server may be silent from here on before the connection counts as lost. Nothing (as in the beginning): for as long as it
  /// takes, since a statement of a handler may be slow, while a new connection to the server is answered; that is tried after each two connect_timeouts.
  void patience(std::optional<std::chrono::milliseconds> most) noexcept { patience_ = most; }
  /// The last FATAL error of the server; without a SQLSTATE where there was none.
  [[nodiscard]] ServerError last_words() const { return last_words_.value_or(ServerError{}); }
  /// Since it was last asked: the server was told to end a transaction where none was open.
  [[nodiscard]] bool ended_nothing() noexcept { return std::exchange(ended_nothing_, false); }

  /// From here on looks at what somebody else (libpqxx) sends on it, which is all that goes out of pipeline mode.
  void watch();
  /// Somebody else's COMMIT has succeeded since forget_seen().
  [[nodiscard]] bool saw_commit() const noexcept { return saw_commit_; }
  /// Somebody else's CLOSE ALL has: the connection is lost, so that no COMMIT follows it.
  [[nodiscard]] bool saw_close_all() const noexcept { return saw_close_all_; }
  /// The error of the last statement of somebody else's, unless that statement succeeded.
  [[nodiscard]] const std::optional<ServerError>& seen_failure() const noexcept { return seen_failure_; }
  void forget_seen() noexcept {
    saw_commit_ = saw_close_all_ = false;
    seen_failure_.reset();
  }

  /// Whether the server has hung up while nothing was asked of it. Costs one poll(2).
  [[nodiscard]] bool hung_up();
  /// The next result of what was sent, sending on meanwhile: blocking on a write while the server blocks on its own would
  /// never end. Null as PQgetResult gives it. Throws ConnectionLost.
  Result next_result();
  /// Throws ConnectionLost with what the server said last.
  [[noreturn]] void fail();
  /// libpqxx replaces the notice handlers; this puts ours back.
  void own_notices() noexcept;

 private:
  static void on_notice(void* self, const PGresult* notice);
  static int on_event(PGEventId event, void* info, void* self);
  void note_seen(const PGresult* result);
  void wait(short events);
  [[nodiscard]] bool server_answers() const;
  [[nodiscard]] bool is_cut() const noexcept { return cut_ && *cut_; }

  PGconn* connection_ = nullptr;
  std::chrono::milliseconds connect_timeout_;
  Cut cut_;
  std::vector<std::string> client_settings_;
  std::optional<std::chrono::milliseconds> patience_;
  bool lost_ = false;
  bool condemned_ = false;
  bool ended_nothing_ = false;
  bool end_of_input_ = false;
  bool watched_ = false;
  bool saw_commit_ = false;
  bool saw_close_all_ = false;
  std::optional<ServerError> seen_failure_;
  std::optional<ServerError> last_words_;
};

}  // namespace turnstile::postgres
