#pragma once
// A connection made by libpq and never reconnected: a lost connection is dropped (hazard: silent-reconnect).

#include <libpq-events.h>
#include <libpq-fe.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/config.hpp"
#include "wire/errors.hpp"

namespace turnstile::postgres {

/// The target of the settings, without the password: "localhost:5432, database app, user app".
std::string describe_target(const PostgresSettings& settings);
/// Throws ConfigError with the key "postgres.url" or "postgres.schema". It never shows the URL.
void check_settings(const PostgresSettings& settings);

/// How long one of the adapter's own statements may stay unanswered, if it waits for locks up to `lock_timeout`.
inline std::chrono::milliseconds answer_within(const PostgresSettings& settings,
                                               std::chrono::milliseconds lock_timeout) {
  return 2 * settings.connect_timeout + lock_timeout;
}

/// True: callers stop waiting for the server (Store::cut). Null: never.
using Cut = std::shared_ptr<const std::atomic<bool>>;

/// One thread at a time may use it.
class Connection {
 public:
  /// Waits up to settings.connect_timeout, or until `cut`. Throws StoreUnavailable, which names host, database and
  /// user.
  explicit Connection(const PostgresSettings& settings, Cut cut = {});
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] PGconn* raw() const noexcept { return connection_.get(); }
  [[nodiscard]] bool lost() const noexcept { return lost_; }
  [[nodiscard]] std::string user() const;
  /// The settings that a client can set when it connects, as the server or a pooler confirmed them: names and values
  /// alternately.
  [[nodiscard]] const std::vector<std::string>& client_settings() const noexcept { return client_settings_; }
  /// No transaction open, nothing in flight, not condemned: it may be lent again.
  [[nodiscard]] bool idle() const noexcept;
  /// It leads to a server that cannot serve this client, and must not be used again.
  void condemn() noexcept { condemned_ = true; }

  /// How long the server may be silent from here on before the connection counts as lost. Absent (at first): as long as
  /// the server accepts a new connection, because a handler's statement may be slow. It tries a new connection after
  /// every two connect_timeouts.
  /// `cancels`: a server that was silent for longer than `most` is asked to cancel the statement. Not for a COMMIT, also
  /// one that the server makes itself: if it waits for a replica, it would become visible without it.
  void patience(std::optional<std::chrono::milliseconds> most, bool cancels = false) noexcept {
    patience_ = most;
    cancels_ = cancels;
  }
  /// What `look` did, and when it wants to be called again.
  struct Looked {
    std::chrono::milliseconds again{};
    bool helped = false;  ///< it removed what the server waited for: the time of patience() begins anew
  };
  /// While the server is silent, the waiting thread calls `look` after `pause`, and again as it asks. `look` must not
  /// use this connection, and must not throw. Null: none.
  void while_waiting(std::chrono::milliseconds pause, std::function<Looked()> look) noexcept {
    pause_ = pause;
    look_ = std::move(look);
  }
  /// The last FATAL error of the server; without a SQLSTATE if there was none.
  [[nodiscard]] ServerError last_words() const { return last_words_.value_or(ServerError{}); }
  /// Since the last call: whether the server was told to end a transaction although none was open.
  [[nodiscard]] bool ended_nothing() noexcept { return std::exchange(ended_nothing_, false); }
  /// Since the last call: whether a COMMIT succeeded whose wait for the synchronous replicas was cancelled.
  [[nodiscard]] bool unreplicated() noexcept { return std::exchange(unreplicated_, false); }

  /// From here on observes the statements that libpqxx sends, which are all those outside of pipeline mode.
  void watch();
  /// Whether a COMMIT of libpqxx has succeeded since forget_seen().
  [[nodiscard]] bool saw_commit() const noexcept { return saw_commit_; }
  /// Whether a CLOSE ALL of libpqxx has. The connection is then lost, so that no COMMIT can follow.
  [[nodiscard]] bool saw_close_all() const noexcept { return saw_close_all_; }
  /// The error of libpqxx's last statement, unless it succeeded.
  [[nodiscard]] const std::optional<ServerError>& seen_failure() const noexcept { return seen_failure_; }
  void forget_seen() noexcept {
    saw_commit_ = saw_close_all_ = false;
    seen_failure_.reset();
  }

  /// Whether the server has closed the connection while it was idle. Costs one poll(2).
  [[nodiscard]] bool hung_up();
  /// The next result. It also sends in the meantime: if it blocked on a write while the server blocks on its own,
  /// neither would ever end. Null as from PQgetResult. Throws ConnectionLost.
  Result next_result();
  /// Throws ConnectionLost with the server's last error.
  [[noreturn]] void fail();
  /// libpqxx replaces the notice handlers; this restores them.
  void own_notices() noexcept;

 private:
  static void on_notice(void* self, const PGresult* notice);
  static int on_event(PGEventId event, void* info, void* self);
  void note_seen(const PGresult* result);
  void wait(short events);
  void cancel_statement() const noexcept;
  [[nodiscard]] bool server_answers() const;
  [[nodiscard]] bool is_cut() const noexcept { return cut_ && *cut_; }

  std::shared_ptr<PGconn> connection_;  ///< shared with the thread of cancel_statement()
  std::chrono::milliseconds connect_timeout_;
  Cut cut_;
  std::vector<std::string> client_settings_;
  std::optional<std::chrono::milliseconds> patience_;
  bool cancels_ = false;
  std::chrono::milliseconds pause_{};
  std::function<Looked()> look_;
  bool lost_ = false;
  bool condemned_ = false;
  bool ended_nothing_ = false;
  bool unreplicated_ = false;
  bool end_of_input_ = false;
  bool watched_ = false;
  bool saw_commit_ = false;
  bool saw_close_all_ = false;
  std::optional<ServerError> seen_failure_;
  std::optional<ServerError> last_words_;
};

}  // namespace turnstile::postgres
