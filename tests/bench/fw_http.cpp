// A cpp-httplib server with the HTTP adapter; raw_http does the same by hand.
//  --postgres URL --schema S --threads N --bytes B
// Prints "port N" when it listens, and runs until its standard input ends. Each key is charged when it first arrives,
// with a response of B bytes.

#include <httplib.h>

#include "tests/bench/fw_common.hpp"
#include "tests/bench/http_server.hpp"
#include "turnstile/http/idempotent.hpp"
#include "turnstile/inbox.hpp"
#include "turnstile/postgres/store.hpp"

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const auto settings = bench::postgres_settings(args.text("postgres"), args.text("schema"));
  const std::int64_t threads = args.number("threads", 8);
  const std::string body(static_cast<std::size_t>(args.number("bytes", 200)), 'x');
  args.done();

  turnstile::Inbox inbox{turnstile::postgres::open_store(settings)};
  httplib::Server server;
  server.Post("/charge",
              turnstile::http::idempotent(
                  inbox, "bench", [&](const httplib::Request&, httplib::Response& response, turnstile::Context&) {
                    response.set_content(body, "text/plain");
                  }));
  bench::serve(server, threads);
  return 0;
}
