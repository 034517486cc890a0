// turnstile dashboard: a page that shows permits over time, topics, dead letters, the history of a message, and limits.

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <memory>
#include <system_error>
#include <thread>

#include "command.hpp"
#include "dashboard/server.hpp"
#include "operator_name.hpp"
#include "output.hpp"
#include "settings.hpp"

namespace turnstile::cli {

namespace {

struct DashboardOptions {
  DomainOptions domain;
  std::vector<std::string> topics;
  std::string listen = "127.0.0.1:8080";
  std::string by;
  bool allow_changes = false;
};

/// SIGINT and SIGTERM as a descriptor. Created before any thread, so that all threads block them.
class EndSignal {
 public:
  EndSignal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set, nullptr);
    descriptor_ = signalfd(-1, &set, SFD_CLOEXEC);
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
  }
  ~EndSignal() { close(descriptor_); }
  EndSignal(const EndSignal&) = delete;
  EndSignal& operator=(const EndSignal&) = delete;

  [[nodiscard]] bool arrives(std::chrono::milliseconds within) const {
    pollfd ready{descriptor_, POLLIN, 0};
    return poll(&ready, 1, static_cast<int>(within.count())) > 0;
  }

 private:
  int descriptor_ = -1;
};

std::string url(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}/", is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", port);
}

void warn_open(const std::string& host, bool allow_changes) {
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  tell(fmt::format("{}turnstile: warning: the dashboard has no authentication: everybody who can reach {} can {}{}\n",
                   is_terminal ? "\x1b[1m" : "", one_line(host, 80),
                   allow_changes ? "read messages, replay them, and change limits" : "read messages and limits",
                   is_terminal ? "\x1b[0m" : ""));
}

Exit dashboard_verb(const Global& global, const DashboardOptions& options) {
  const auto at = AdminSettings{.listen = options.listen}.address();
  if (!at) {
    throw UsageError(
        fmt::format("--listen {}: write HOST:PORT, as in 127.0.0.1:8080 or [::1]:8080", one_line(options.listen, 80)));
  }
  const Config config = load_settings(global);
  if (!config.postgres || config.postgres->url.empty()) require_kafka(config);
  const std::string by = options.by.empty() ? operator_name() : options.by;
  const EndSignal end;
  dashboard::Api api(global, config, {.domain = options.domain, .topics = options.topics, .by = by});
  dashboard::Server server(
      api, {.rules = {.host = at->host, .allow_changes = options.allow_changes, .token = dashboard::random_token()},
            .port = at->port,
            .by = by});
  if (!dashboard::is_loopback(at->host)) warn_open(at->host, options.allow_changes);
  fmt::print("the dashboard is at {} ({}); Ctrl-C ends it\n", url(at->host, server.port()),
             options.allow_changes ? "changes are allowed" : "read-only; --allow-changes allows changes");
  std::fflush(stdout);
  std::atomic<bool> ended{false};
  std::thread serving([&] {
    server.run();
    ended = true;
  });
  while (!ended && !end.arrives(std::chrono::milliseconds(200))) {
  }
  // cpp-httplib forgets a stop() that comes just before its loop begins.
  while (!ended) {
    server.stop();
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  serving.join();
  api.end(static_cast<int>(Exit::ok));
  return Exit::ok;
}

}  // namespace

void add_dashboard(Verb app, Command& command) {
  const auto options = std::make_shared<DashboardOptions>();
  const auto verb =
      app.add_verb("dashboard", "a page for the browser: permits over time, topics, dead letters, messages and limits");
  verb.add_option("TOPIC", options->topics, "these topics only (default: as turnstile top)");
  verb.add_option("--listen", options->listen, "the address of the page; port 0: any free port")
      .type("HOST:PORT")
      .shows_default();
  verb.add_flag("--allow-changes", options->allow_changes,
                "the page can edit and replay dead letters, and change limits");
  verb.add_option("--by", options->by, "who makes the changes, for their record (default: USER@HOST)").type("NAME");
  add_domain_options(verb, options->domain);
  verb.footer(
      "Without authentication: keep it on 127.0.0.1, and reach it through ssh -L 8080:127.0.0.1:8080 HOST.\n"
      "It answers requests to localhost and to its own address only, and none from other origins.");
  verb.runs(command, [options](const Global& global) { return dashboard_verb(global, *options); });
}

}  // namespace turnstile::cli
