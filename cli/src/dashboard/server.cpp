#include "server.hpp"

#include <fmt/format.h>
#include <sys/random.h>

#include <array>
#include <cerrno>
#include <functional>
#include <system_error>

#include "embedded_page.hpp"
#include "turnstile/admin/bounded_server.hpp"

namespace turnstile::cli::dashboard {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kLongestBody = 2'000'000;
/// A longer body is read and not stored, so that its client gets the answer. An answer may need a search through a topic.
constexpr admin::BoundedServer::Bounds kBounds{.threads = 64, .time = 5min, .bytes = 8 * kLongestBody};
constexpr int kDeepestBody = 8;
constexpr const char* kJson = "application/json";
/// No script but the page's own, no other site's frame, and no request to another site.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

void answer(httplib::Response& response, int status, const Json& json) {
  response.status = status;
  response.set_content(json.dump(-1, ' ', false, Json::error_handler_t::replace), kJson);
}

void fail(httplib::Response& response, int status, const std::string& why, Code code) {
  answer(response, status, {{"error", why}, {"code", std::string(to_text(code))}});
}

/// Calls `work`, and turns what it throws into one line.
void attempt(httplib::Response& response, const std::function<Json()>& work) {
  try {
    answer(response, 200, work());
  } catch (const UsageError& error) {
    fail(response, 400, error.what(), error.code());
  } catch (const ConfigError& error) {
    fail(response, 400, error.problems.empty() ? error.what() : error.problems.front(), error.code());
  } catch (const StoreUnavailable& error) {
    fail(response, 503, error.what(), error.code());
  } catch (const BrokerError& error) {
    fail(response, error.code() == Code::topic_missing ? 404 : 503, error.what(), error.code());
  } catch (const Json::exception& error) {
    fail(response, 400, fmt::format("the request is not as expected: {}", error.what()), Code::usage);
  } catch (const std::exception& error) {
    const Code code = code_of(error);
    const bool is_missing = code == Code::not_found || code == Code::limiter_unknown;
    const bool is_refused = code == Code::operation_refused;
    fail(response, is_missing ? 404 : is_refused ? 409 : code == Code::usage ? 400 : 500, error.what(), code);
  }
}

Query query_of(const httplib::Request& request) { return Query({request.params.begin(), request.params.end()}); }

Json body_of(const httplib::Request& request) {
  if (!request.params.empty()) throw UsageError("a change has its fields in its body, and none in its address");
  // Copies of a value with 100,000 levels would overflow the stack.
  const auto is_flat = [](int depth, Json::parse_event_t, const Json&) {
    if (depth > kDeepestBody) throw UsageError("the body of the request has too many levels");
    return true;
  };
  Json body = Json::parse(request.body, is_flat, false);
  if (!body.is_object()) throw UsageError("the body of the request is no JSON object");
  return body;
}

}  // namespace

struct Server::Impl {
  Impl(Api& of, Options what) : api(of), options(std::move(what)) {}

  void read(const std::string& path, std::function<Json(const httplib::Request&)> work) {
    http.Get(path, [work = std::move(work)](const httplib::Request& request, httplib::Response& response) {
      attempt(response, [&] { return work(request); });
    });
  }
  void change(const std::string& path, std::function<Json(const httplib::Request&)> work) {
    http.Post(path, [work = std::move(work)](const httplib::Request& request, httplib::Response& response) {
      attempt(response, [&] { return work(request); });
    });
  }
  void file(const std::string& path, const char* name, const char* type) {
    http.Get(path, [name, type](const httplib::Request&, httplib::Response& response) {
      const auto text = embedded(name);
      response.set_content(text.data(), text.size(), type);
    });
  }

  void prepare() {
    http.set_payload_max_length(kLongestBody);
    http.set_default_headers({{"Content-Security-Policy", kPolicy},
                              {"X-Content-Type-Options", "nosniff"},
                              {"X-Frame-Options", "DENY"},
                              {"Referrer-Policy", "no-referrer"},
                              {"Cross-Origin-Resource-Policy", "same-origin"},
                              {"Cache-Control", "no-store"}});
    http.set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      const auto refused = refuse(options.rules, {.method = request.method,
                                                  .path = request.path,
                                                  .host = request.get_header_value("Host"),
                                                  .origin = request.get_header_value("Origin"),
                                                  .site = request.get_header_value("Sec-Fetch-Site"),
                                                  .type = request.get_header_value("Content-Type"),
                                                  .token = request.get_header_value("X-Turnstile-Token"),
                                                  .coding = request.get_header_value("Transfer-Encoding"),
                                                  .length = request.get_header_value("Content-Length")});
      if (!refused) return httplib::Server::HandlerResponse::Unhandled;
      fail(response, refused->status, refused->why, Code::operation_refused);
      return httplib::Server::HandlerResponse::Handled;
    });
    http.set_error_handler([](const httplib::Request& request, httplib::Response& response) {
      if (!response.body.empty() || request.method == "HEAD") return;
      if (response.status == 404) return fail(response, 404, "the dashboard has no such address", Code::not_found);
      fail(response, response.status,
           response.status == 413 ? fmt::format("the request is longer than {} bytes: refused", kLongestBody)
                                  : fmt::format("HTTP {}: the request is not as expected", response.status),
           Code::usage);
    });
    file("/", "index.html", "text/html; charset=utf-8");
    file("/dashboard.css", "dashboard.css", "text/css; charset=utf-8");
    file("/dashboard.js", "dashboard.js", "text/javascript; charset=utf-8");
    read("/api/session", [this](const auto&) {
      return Json{{"version", TURNSTILE_VERSION},
                  {"allow_changes", options.rules.allow_changes},
                  {"token", options.rules.allow_changes ? Json(options.rules.token) : Json(nullptr)},
                  {"by", options.by}};
    });
    read("/api/overview", [this](const auto&) { return api.overview(); });
    read("/api/permits/history", [this](const auto& request) { return api.history(query_of(request)); });
    read("/api/permits/at", [this](const auto& request) { return api.permits_at(query_of(request)); });
    read("/api/dead/groups", [this](const auto& request) { return api.dead_groups(query_of(request)); });
    read("/api/dead", [this](const auto& request) { return api.dead_list(query_of(request)); });
    read(R"(/api/dead/(\d{1,18}))",
         [this](const auto& request) { return api.dead_letter(std::stoll(request.matches[1])); });
    read("/api/replay", [this](const auto&) { return api.replay_state(); });
    read("/api/message", [this](const auto& request) { return api.message(query_of(request)); });
    read("/api/message/records", [this](const auto& request) { return api.deliveries(query_of(request)); });
    change(R"(/api/dead/(\d{1,18})/edit)",
           [this](const auto& request) { return api.edit_dead(std::stoll(request.matches[1]), body_of(request)); });
    change("/api/replay/preview", [this](const auto& request) { return api.replay_preview(body_of(request)); });
    change("/api/replay", [this](const auto& request) { return api.replay(body_of(request)); });
    change("/api/replay/stop", [this](const auto&) { return api.stop_replay(); });
    change("/api/limits", [this](const auto& request) { return api.set_limit(body_of(request)); });
  }

  Api& api;
  const Options options;
  admin::BoundedServer http{kBounds};
  int port = 0;
};

Server::Server(Api& api, Options options) : impl_(std::make_unique<Impl>(api, std::move(options))) {
  impl_->prepare();
  const std::string& host = impl_->options.rules.host;
  const int wanted = impl_->options.port;
  impl_->port = impl_->http.bind(host, wanted);
  if (impl_->port == 0) {
    throw UsageError(
        fmt::format("--listen {}:{}: the port is in use, or the address is not one of this machine; choose "
                    "another one, or port 0 for any free port",
                    one_line(host, 80), wanted));
  }
}

Server::~Server() = default;

int Server::port() const noexcept { return impl_->port; }
void Server::run() { impl_->http.listen_after_bind(); }
void Server::stop() { impl_->http.end(); }

std::string random_token() {
  std::array<unsigned char, 32> bytes{};
  if (getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size()))
    throw std::system_error(errno, std::generic_category(), "getrandom");
  std::string text;
  for (const auto byte : bytes) text += fmt::format("{:02x}", byte);
  return text;
}

}  // namespace turnstile::cli::dashboard
