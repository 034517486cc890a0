// A cpp-httplib server whose handler does by hand what the HTTP adapter does for a key that is done. It runs the same
// SELECT by primary key, on a libpq connection of each thread, and responds with its bytes.
//  --postgres URL --schema S --threads N
// Prints "port N" when it listens, and runs until its standard input ends. fw_http has filled the table.

#include <httplib.h>
#include <libpq-fe.h>

#include <memory>

#include "tests/bench/http_server.hpp"

namespace {

using Connection = std::unique_ptr<PGconn, decltype(&PQfinish)>;
using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

Connection connect(const std::string& url, const std::string& schema) {
  Connection connection(PQconnectdb(url.c_str()), &PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) bench::die(PQerrorMessage(connection.get()));
  const std::string sql =
      "SELECT i.fingerprint, r.body FROM " + schema + ".inbox i LEFT JOIN " + schema +
      ".response r ON r.handler = i.handler AND r.id = i.id WHERE i.handler = 1 AND i.id = $1::uuid";
  const Result prepared(PQprepare(connection.get(), "find", sql.c_str(), 0, nullptr), &PQclear);
  if (PQresultStatus(prepared.get()) != PGRES_COMMAND_OK) bench::die(PQerrorMessage(connection.get()));
  return connection;
}

}  // namespace

int main(int argc, char** argv) {
  bench::Args args(argc, argv);
  const std::string url = args.text("postgres"), schema = args.text("schema");
  const std::int64_t threads = args.number("threads", 8);
  args.done();

  httplib::Server server;
  server.Post("/charge", [&](const httplib::Request& request, httplib::Response& response) {
    thread_local const Connection connection = connect(url, schema);
    const std::string key = request.get_header_value("Idempotency-Key");
    const char* const values[] = {key.c_str()};
    const Result row(PQexecPrepared(connection.get(), "find", 1, values, nullptr, nullptr, 1), &PQclear);
    if (PQresultStatus(row.get()) != PGRES_TUPLES_OK) bench::die(PQerrorMessage(connection.get()));
    if (PQntuples(row.get()) != 1) {
      response.status = 404;
      return;
    }
    response.set_content(PQgetvalue(row.get(), 0, 1), static_cast<std::size_t>(PQgetlength(row.get(), 0, 1)),
                         "text/plain");
  });
  bench::serve(server, threads);
  return 0;
}
