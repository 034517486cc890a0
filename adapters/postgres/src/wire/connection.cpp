#include "wire/connection.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "turnstile/error.hpp"
#include "wire/identifier.hpp"

namespace turnstile::postgres {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

struct FreeOptions {
  void operator()(PQconninfoOption* options) const noexcept { PQconninfoFree(options); }
};
using Options = std::unique_ptr<PQconninfoOption, FreeOptions>;

Options parse(const std::string& url) {
  char* problem = nullptr;
  Options options(PQconninfoParse(url.c_str(), &problem));
  PQfreemem(problem);  // it may quote the URL with the password
  return options;
}

std::string option(const PQconninfoOption* options, std::string_view keyword) {
  for (; options && options->keyword; ++options) {
    if (keyword == options->keyword) return options->val ? options->val : "";
  }
  return "";
}

std::string without(std::string text, const std::string& secret) {
  if (secret.empty()) return text;
  for (auto at = text.find(secret); at != std::string::npos; at = text.find(secret, at + 3)) {
    text.replace(at, secret.size(), "***");
  }
  return text;
}

bool looks_like_url(std::string_view url) {
  return url.substr(0, 13) == "postgresql://" || url.substr(0, 11) == "postgres://";
}

/// After a failover another of the hosts is the primary.
bool names_several_hosts(const std::string& url) {
  const auto options = parse(url);
  return option(options.get(), "host").find(',') != std::string::npos ||
         option(options.get(), "hostaddr").find(',') != std::string::npos;
}

/// With an unescaped '@' or '/' in a password, the rest of it becomes part of the host, which error messages would
/// show.
bool has_stray_at(std::string_view url) {
  return looks_like_url(url) &&
         std::count(url.begin(), url.begin() + static_cast<std::ptrdiff_t>(std::min(url.find('?'), url.size())), '@') >
             1;
}

std::string seconds(std::chrono::milliseconds time) {
  // libpq counts whole seconds and treats 1 as 2.
  const auto whole = std::chrono::ceil<std::chrono::seconds>(time).count();
  return std::to_string(std::max<std::int64_t>(whole, 2));
}

/// The longest time until a cut is noticed.
constexpr milliseconds kCutSeen{50};
/// In the first moments of a connection libpq asks GSSAPI for credentials, which takes a few milliseconds. The end of the
/// process destroys GSSAPI's mutexes, and a thread that still needs them would abort. So no younger one is left behind.
constexpr milliseconds kBegins{300};

/// Runs a call of libpq that cannot be ended, on a thread of its own. If the wait is cut, the thread is left behind.
/// Absent: it was cut.
template <class Work>
std::optional<std::invoke_result_t<Work>> unless_cut(const Cut& cut, Work work) {
  if (!cut) return work();
  std::packaged_task<std::invoke_result_t<Work>()> task(std::move(work));
  auto result = task.get_future();
  const auto began = steady_clock::now();
  std::thread(std::move(task)).detach();
  while (result.wait_for(kCutSeen) != std::future_status::ready) {
    if (*cut && steady_clock::now() - began >= kBegins) return std::nullopt;
  }
  return result.get();
}

struct FinishConnection {
  void operator()(PGconn* connection) const noexcept { PQfinish(connection); }
};
using OwnedConnection = std::unique_ptr<PGconn, FinishConnection>;

OwnedConnection connect(const PostgresSettings& settings) {
  const std::string timeout = seconds(settings.connect_timeout);
  // The settings before the URL are defaults that the URL may override. Keepalives and the user timeout limit how long
  // a host that vanished without a FIN can block a worker: 20 s.
  const char* const keywords[] = {
      "connect_timeout",  "fallback_application_name", "keepalives_idle", "keepalives_interval", "keepalives_count",
      "tcp_user_timeout", "target_session_attrs",      "dbname",          "client_encoding",     nullptr};
  // libpq ignores an empty value.
  const bool several = names_several_hosts(settings.url.reveal()) && std::getenv("PGTARGETSESSIONATTRS") == nullptr;
  const char* const values[] = {
      timeout.c_str(), "turnstile", "10", "5", "2", "20000", several ? "read-write" : "", settings.url.reveal().c_str(),
      "UTF8",          nullptr};
  return OwnedConnection(PQconnectdbParams(keywords, values, 1));
}

std::string connect_problem(PGconn* connection, const PostgresSettings& settings) {
  const auto options = parse(settings.url.reveal());
  std::string text = without(PQerrorMessage(connection), option(options.get(), "password"));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::erase(text, '\t');
  std::string remedy = "check postgres.url and that the server runs";
  if (PQconnectionNeedsPassword(connection)) remedy = "the server requires a password, but postgres.url has none";
  else if (PQconnectionUsedPassword(connection))
    remedy = "if the server rejected the login, check the user, the password and the database in postgres.url";
  return "cannot connect to PostgreSQL (" + describe_target(settings) + "): " + text + "; " + remedy;
}

}  // namespace

std::string describe_target(const PostgresSettings& settings) {
  const auto options = parse(settings.url.reveal());
  const auto or_default = [&](std::string_view key, std::string_view otherwise) {
    auto value = option(options.get(), key);
    return value.empty() ? std::string(otherwise) : value;
  };
  const std::string database = option(options.get(), "dbname"), user = option(options.get(), "user");
  return or_default("host", "local socket") + ":" + or_default("port", "5432") +
         (database.empty() ? "" : ", database " + database) + (user.empty() ? "" : ", user " + user);
}

void check_settings(const PostgresSettings& settings) {
  std::vector<std::string> problems;
  const std::string& url = settings.url.reveal();
  if (url.empty()) {
    problems.emplace_back("postgres.url: missing; write postgresql://USER@HOST/DATABASE");
  } else if (has_stray_at(url)) {
    problems.emplace_back(
        "postgres.url: has more than one '@'; in a user name or password, write %40 for '@' and %2F for '/'");
  } else if (!parse(url)) {
    problems.emplace_back(
        "postgres.url: is neither a URL (postgresql://USER:PASSWORD@HOST:PORT/DATABASE, special characters as %XX) nor key=value text");
  }
  if (!is_plain_name(settings.schema)) {
    problems.push_back("postgres.schema: \"" + settings.schema +
                       "\" is not a plain name; use at most 63 letters, digits and underscores");
  }
  if (settings.connections < 0) problems.emplace_back("postgres.connections: must be 0 (one for each worker) or more");
  if (!problems.empty()) throw ConfigError(std::move(problems));
}

Connection::Connection(const PostgresSettings& settings, Cut cut)
    : connect_timeout_(settings.connect_timeout), cut_(std::move(cut)) {
  auto connection = unless_cut(cut_, [settings] { return connect(settings); });
  if (!connection) throw StoreUnavailable("PostgreSQL did not answer before this process ended");
  connection_ = std::move(*connection);
  if (!connection_) throw StoreUnavailable("cannot connect to PostgreSQL: out of memory");
  if (PQstatus(raw()) != CONNECTION_OK) throw StoreUnavailable(connect_problem(raw(), settings));
  for (const char* name : {"client_encoding", "application_name", "DateStyle", "IntervalStyle", "TimeZone",
                           "standard_conforming_strings"}) {
    const char* value = PQparameterStatus(raw(), name);
    if (value) client_settings_.insert(client_settings_.end(), {name, value});
  }
  own_notices();
}

Connection::~Connection() {
  // A thread that cancels the statement may close the connection later, without this object.
  PQsetNoticeReceiver(
      raw(), [](void*, const PGresult*) {}, nullptr);
}

std::string Connection::user() const {
  const char* name = PQuser(raw());
  return name ? name : "";
}

bool Connection::idle() const noexcept {
  return !lost_ && !condemned_ && PQstatus(raw()) == CONNECTION_OK && PQtransactionStatus(raw()) == PQTRANS_IDLE;
}

void Connection::own_notices() noexcept {
  PQsetNoticeReceiver(raw(), &Connection::on_notice, this);
  PQsetNoticeProcessor(
      raw(), [](void*, const char*) {}, nullptr);
}

void Connection::on_notice(void* self, const PGresult* notice) {
  // A FATAL error without a pending statement, such as the end of an idle transaction, arrives as a notice.
  ServerError error = server_error(notice);
  if (error.sqlstate == "25P01") static_cast<Connection*>(self)->ended_nothing_ = true;
  // A warning of this function (its name is not translated): it was told not to wait any longer.
  const char* from = PQresultErrorField(notice, PG_DIAG_SOURCE_FUNCTION);
  if (from && std::strcmp(from, "SyncRepWaitForLSN") == 0) static_cast<Connection*>(self)->unreplicated_ = true;
  if (error.fatal) static_cast<Connection*>(self)->last_words_ = std::move(error);
}

void Connection::watch() {
  if (watched_) return;
  watched_ = PQregisterEventProc(raw(), &Connection::on_event, "turnstile", this) != 0;
  if (!watched_) throw StoreUnavailable("cannot watch the connection to PostgreSQL: out of memory");
}

int Connection::on_event(PGEventId event, void* info, void* self) {
  if (event != PGEVT_RESULTCREATE) return 1;
  const auto& created = *static_cast<const PGEventResultCreate*>(info);
  if (PQpipelineStatus(created.conn) != PQ_PIPELINE_OFF) return 1;
  auto& connection = *static_cast<Connection*>(self);
  connection.note_seen(created.result);
  const std::string_view command = PQcmdStatus(created.result);
  if (command == "COMMIT") connection.saw_commit_ = true;
  if (command == "CLOSE CURSOR ALL") {
    connection.saw_close_all_ = true;
    shutdown(PQsocket(created.conn), SHUT_RDWR);
  }
  return 1;
}

void Connection::note_seen(const PGresult* result) {
  if (PQresultStatus(result) != PGRES_FATAL_ERROR) return seen_failure_.reset();
  ServerError error = server_error(result);
  if (error.fatal) last_words_ = error;
  // It is the error of a statement after the failed one. The first error is the reason.
  if (error.sqlstate != "25P02") seen_failure_ = std::move(error);
}

void Connection::wait(short events) {
  pollfd descriptor{PQsocket(raw()), events, 0};
  const auto began = steady_clock::now();
  const milliseconds slice = patience_.value_or(2 * connect_timeout_);
  const auto silence = [&] {
    const auto whole = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - began);
    return std::to_string(whole.count()) + " s";
  };
  auto next_look = look_ ? began + pause_ : steady_clock::time_point::max();
  for (auto until = began + slice;;) {
    if (is_cut()) {
      lost_ = true;
      throw ConnectionLost{{"", "it had not answered for " + silence() + " when this process ended", true}, true};
    }
    const auto now = steady_clock::now();
    const auto next = std::min({until, next_look, cut_ ? now + kCutSeen : until});
    const auto left = std::chrono::ceil<milliseconds>(next - now);
    const int ready = poll(&descriptor, 1, static_cast<int>(std::max<milliseconds::rep>(left.count(), 0)));
    if (ready > 0) break;
    if (ready < 0 && errno != EINTR) fail();
    if (next == next_look && steady_clock::now() >= next_look) {
      const Looked looked = look_();
      next_look = steady_clock::now() + looked.again;
      if (looked.helped) until = steady_clock::now() + slice;
      continue;
    }
    if (ready < 0 || next != until) continue;
    if (patience_ || !server_answers()) {
      lost_ = true;
      if (patience_ && cancels_) cancel_statement();
      const std::string why =
          patience_ ? ": the server hangs, or the statement waits for a lock (see pg_stat_activity)" : "";
      throw ConnectionLost{{"", "it has not answered for " + silence() + why, true}, true};
    }
    until = steady_clock::now() + slice;
  }
  if ((descriptor.revents & (POLLIN | POLLERR | POLLHUP | POLLNVAL)) != 0) end_of_input_ = PQconsumeInput(raw()) == 0;
}

/// While the server waits for a lock, it does not notice that its client has closed the connection: the session would
/// wait on, one more for each try. The connection stays open until the request has arrived, because a pooler then
/// knows which session it means. PQcancel() can block as long as a connection attempt, so it runs on a thread of its own.
void Connection::cancel_statement() const noexcept {
  struct FreeCancel {
    void operator()(PGcancel* request) const noexcept { PQfreeCancel(request); }
  };
  std::unique_ptr<PGcancel, FreeCancel> request(PQgetCancel(raw()));
  if (!request) return;
  try {
    std::thread([connection = connection_, request = std::move(request)] {
      char problem[256];  // nobody waits for it: the session then ends with its lock_timeout
      PQcancel(request.get(), problem, sizeof problem);
    }).detach();
  } catch (const std::exception&) {
    // No thread could be started: as if the request was lost.
  }
}

/// Opens a new connection to the same address, without logging in.
bool Connection::server_answers() const {
  const auto text = [](const char* value) { return std::string(value ? value : ""); };
  const auto answers =
      unless_cut(cut_, [host = text(PQhost(raw())), address = text(PQhostaddr(raw())), port = text(PQport(raw())),
                        user = text(PQuser(raw())), database = text(PQdb(raw())), timeout = seconds(connect_timeout_)] {
        const char* const keywords[] = {"host", "hostaddr", "port", "user", "dbname", "connect_timeout", nullptr};
        const char* const values[] = {host.c_str(),     address.c_str(), port.c_str(), user.c_str(),
                                      database.c_str(), timeout.c_str(), nullptr};
        return PQpingParams(keywords, values, 0) != PQPING_NO_RESPONSE;
      });
  return answers.value_or(true);  // the wait continues, and notices the cut
}

bool Connection::hung_up() {
  for (;;) {
    pollfd descriptor{PQsocket(raw()), POLLIN, 0};
    if (poll(&descriptor, 1, 0) <= 0) return false;
    const bool ended = PQconsumeInput(raw()) == 0;
    PQisBusy(raw());  // parses the received bytes, so that on_notice() sees them
    // On a busy machine some time can pass between the last error and the end of the stream.
    if (ended || last_words_ || PQstatus(raw()) != CONNECTION_OK) return true;
  }
}

Result Connection::next_result() {
  for (;;) {
    const int unsent = end_of_input_ ? 0 : PQflush(raw());
    // Data before the end is still read: it can contain the answer to COMMIT.
    if (PQsocket(raw()) < 0) end_of_input_ = true;
    if (!PQisBusy(raw())) break;
    if (end_of_input_) fail();
    wait(static_cast<short>(POLLIN | (unsent > 0 ? POLLOUT : 0)));
  }
  Result result(PQgetResult(raw()));
  if (!result) return result;
  if (PQresultStatus(result.get()) == PGRES_FATAL_ERROR) {
    ServerError error = server_error(result.get());
    if (error.fatal) last_words_ = std::move(error);
    if (last_words_ || PQstatus(raw()) == CONNECTION_BAD) fail();
  }
  return result;
}

void Connection::fail() {
  lost_ = true;
  if (last_words_) throw ConnectionLost{*last_words_};
  std::string text = PQerrorMessage(raw());
  std::replace(text.begin(), text.end(), '\n', ' ');
  std::erase(text, '\t');
  while (!text.empty() && (text.back() == ' ')) text.pop_back();
  throw ConnectionLost{{"", text.empty() ? "the server closed the connection" : text, true}};
}

}  // namespace turnstile::postgres
