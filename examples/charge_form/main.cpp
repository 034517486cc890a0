// A form and a JSON endpoint that charge once, however often they are sent.
//
//   TURNSTILE_POSTGRES_URL=postgresql://localhost/app charge_form [PORT]
//
// Listens on 127.0.0.1:PORT (8080; 0: a free port), and prints the address. It creates its own schema,
// turnstile_charge_form. Ends at SIGTERM or Ctrl-C.

#include <pthread.h>

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <future>
#include <iostream>
#include <optional>
#include <string>
#include <turnstile/http/idempotent.hpp>
#include <turnstile/http/tokens.hpp>
#include <turnstile/postgres/migrations.hpp>
#include <turnstile/postgres/store.hpp>
#include <turnstile/postgres_tokens.hpp>

using namespace turnstile;
using namespace std::chrono_literals;

namespace {

constexpr const char* kSchema = "turnstile_charge_form";

/// A whole number from 1 to 9999999, as a person or a program writes it.
std::optional<int> cents_in(const std::string& text) {
  int cents = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cents);
  if (error != std::errc() || end != text.data() + text.size() || cents < 1 || cents > 9'999'999) return std::nullopt;
  return cents;
}

void charge(const std::string& text, httplib::Response& response, Context& ctx) {
  const auto cents = cents_in(text);
  if (!cents) {
    response.status = 400;
    response.set_content("cents is a whole number from 1 to 9999999\n", "text/plain");
    return;
  }
  const Rows charged =
      ctx.tx().exec("INSERT INTO turnstile_charge_form.charge (cents) VALUES ($1) RETURNING id", *cents);
  response.status = 201;
  response.set_content("{\"charge\": " + *charged.at(0, 0) + ", \"cents\": " + text + "}\n", "application/json");
}

/// For the form.
void charge_form(const httplib::Request& request, httplib::Response& response, Context& ctx) {
  charge(request.get_param_value("cents"), response, ctx);
}

/// For programs: the body is the number, which is also JSON.
void charge_body(const httplib::Request& request, httplib::Response& response, Context& ctx) {
  charge(request.body, response, ctx);
}

std::string page(const std::string& token) {
  std::string text = R"(<!doctype html><title>Charge</title>
<form method=post action=/form>
<input type=hidden name=token value=TOKEN>
<label>Cents <input name=cents value=1250></label> <button>Charge</button>
</form>
<p><a href=/charges>How many charges are there?</a>
)";
  return text.replace(text.find("TOKEN"), 5, token);
}

void prepare(const PostgresSettings& settings, ports::Store& store) {
  postgres::migrate_up(settings, postgres::embedded_migration_list());
  const auto session = store.open_session();
  session->begin({}, {});
  session->transaction().exec(
      "CREATE TABLE IF NOT EXISTS turnstile_charge_form.charge (id serial PRIMARY KEY, cents integer NOT NULL)");
  session->commit();
}

/// "charges: 3, cents: 3750"
std::string charges(ports::Store& store) {
  const auto session = store.open_session();
  session->begin({}, {});
  const Rows all = session->transaction().exec(
      "SELECT 'charges: ' || count(*) || ', cents: ' || coalesce(sum(cents), 0) FROM turnstile_charge_form.charge");
  return *all.at(0, 0) + '\n';
}

void serve(httplib::Server& server, Inbox& inbox, const std::shared_ptr<ports::Store>& store) {
  server.set_payload_max_length(1024 * 1024);
  // A program sends a key with each request. With a login, Options::scope would return the user of the key.
  server.Post("/charge", http::idempotent(inbox, "charge", charge_body));
  // A form carries a token. With a login, tokens.subject would return the user of the form.
  const http::Tokens tokens = http::postgres_tokens(1h, {kSchema, "one_time_token"});
  server.Get("/", [=](const httplib::Request& request, httplib::Response& response) {
    response.set_content(page(http::issue_token(*store, tokens, request)), "text/html");
    response.set_header("Cache-Control", "no-store");
  });
  server.Post("/form", http::once_per_token(inbox, "form", tokens, charge_form));
  server.Get("/token", http::issue_tokens(store, tokens));
  server.Get("/charges", [=](const httplib::Request&, httplib::Response& response) {
    response.set_content(charges(*store), "text/plain");
  });
}

/// The port; 0 if it is in use.
int bound(httplib::Server& server, int asked) {
  if (asked == 0) return server.bind_to_any_port("127.0.0.1");
  return server.bind_to_port("127.0.0.1", asked) ? asked : 0;
}

}  // namespace

int main(int argc, char** argv) try {
  const char* url = std::getenv("TURNSTILE_POSTGRES_URL");  // NOLINT(concurrency-mt-unsafe): no other thread yet
  if (!url) {
    std::cerr
        << "set TURNSTILE_POSTGRES_URL to a database in which a schema may be made, as in postgresql://localhost/app\n";
    return 2;
  }
  const PostgresSettings settings{.url = Secret(url), .schema = kSchema};
  const auto store = postgres::open_store(settings);
  prepare(settings, *store);
  Inbox inbox{store};
  // A repeat that comes a day later charges again. `turnstile inbox purge` in cron deletes older ids.
  for (const auto* handler : {"form", "charge"}) inbox.keep_ids(handler, 24h);

  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);
  httplib::Server server;
  serve(server, inbox, store);
  const int asked = argc > 1 ? std::stoi(argv[1]) : 8080;
  const int port = bound(server, asked);
  if (port <= 0) {
    std::cerr << "port " << asked << " of 127.0.0.1 is taken; name another, or 0 for a free one\n";
    return 1;
  }
  std::cout << "http://127.0.0.1:" << port << std::endl;
  const auto listening = std::async(std::launch::async, [&] { server.listen_after_bind(); });
  int signal = 0;
  sigwait(&ends, &signal);
  // cpp-httplib forgets a stop() that comes just before its loop begins.
  do {
    server.stop();
  } while (listening.wait_for(10ms) != std::future_status::ready);
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
