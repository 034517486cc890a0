#pragma once
// The header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header) for cpp-httplib. A repeated request takes
// effect once, in any process, and gets the response of the first.
//
//   turnstile::Inbox inbox{turnstile::postgres::open_store({.url = turnstile::Secret("postgresql://localhost/app")})};
//   httplib::Server server;
//   server.Post("/charge", turnstile::http::idempotent(inbox, "charge",
//       [](const httplib::Request& request, httplib::Response& response, turnstile::Context& ctx) {
//         ctx.tx().exec("INSERT INTO charge (cents) VALUES ($1)", request.body);
//         response.status = 201;
//         response.set_content("charged\n", "text/plain");
//       }));
//
// The key is written as in the draft, "in quotes", with \" and \\ for those two characters. Or it is bare, as most
// clients send it. (cpp-httplib, as in Debian 12, decodes %XX in headers first: a%41 and aA are one key.) The
// responses:
//
//   the effect's own     Status, headers and body, stored in the transaction of the effect. A repeat gets the same
//                        bytes, with `Idempotent-Replayed: true`. This includes errors of the client (4xx): a repeat
//                        would fail again.
//   204, or 200          With `Idempotent-Replayed: true`, and 200 with the recorded response: Inbox::record() has
//                        recorded the key.
//   the effect's own 5xx Nothing is stored and everything is rolled back: a repeat runs.
//   400                  No key, more than one, or a key that cannot be read.
//   409, Retry-After     A request with this key is running, and ran for longer than `wait`.
//   413                  A body of more than `max_body` bytes.
//   422                  The key came with another request: another method, target with query, content type or body.
//   500                  The response cannot be stored: it is larger than `max_response`, or a content provider makes
//                        it. Everything is rolled back.
//   503, Retry-After     PostgreSQL is unavailable or too busy. The result is unknown: send the request again with the
//                        same key.
//
// Responses that the effect does not make are application/problem+json (RFC 9457). An exception of the effect goes to
// the server's exception handler, as from any handler of cpp-httplib, and nothing is stored.
//
// cpp-httplib reads the whole body first. Limit it with server.set_payload_max_length() too (cpp-httplib then responds
// 413 itself). A request that waits, for `wait` or in the database, occupies one of the server's threads.
//
// Keys are kept forever unless the program calls inbox.keep_ids(handler, …). Call it at start, and every day.

#include <httplib.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "turnstile/inbox.hpp"

namespace spdlog {
class logger;
}

/// Endpoints and forms that take effect once, for cpp-httplib.
namespace turnstile::http {

/// The effect that must happen once. It fills a response of its own, which is added to the server's. If its transaction
/// is lost, it may be called again with an empty response (see Inbox::Effect). Several threads may call it at once. It
/// must not use ctx.reply().
using Effect = std::function<void(const httplib::Request&, httplib::Response&, Context&)>;

/// The options of an endpoint with keys.
struct Options {
  /// **Security: return the authenticated user**. The result is the scope of the key: a key of one user is not a key of
  /// another. Without it keys are shared by all clients. A client that sends another client's key with the same request
  /// then receives that client's response. That is acceptable only if all clients may see the same.
  /// Several threads call it. Its exceptions go to the server.
  std::function<std::string(const httplib::Request&)> scope{};
  /// How long a request waits for a concurrent request with the same key. Absent: idempotent() does not wait, and
  /// once_per_token() waits 5 s.
  std::optional<std::chrono::milliseconds> wait{};
  std::chrono::milliseconds lock_timeout{5'000};  ///< the longest wait of the effect's statements for a lock; then 503
  std::size_t max_key = 255;                      ///< in bytes
  std::size_t max_body = 1024 * 1024;             ///< in bytes: a request's body, or all parts of a form
  std::size_t max_response = 64 * 1024;           ///< in bytes: a response that is stored, with its headers
  std::chrono::seconds retry_after{1};            ///< the header Retry-After of 409 and 503
  /// Logs each 500, and the start and end of an outage of PostgreSQL. Null: a logger to stderr.
  std::shared_ptr<spdlog::logger> log{};
};

/// The handler for server.Post(), Put(), Patch() or Delete(). `handler` is the scope of its keys in the inbox; two
/// endpoints with one name share their keys. The inbox must outlive the server.
httplib::Server::Handler idempotent(Inbox& inbox, std::string handler, Effect effect, Options options = {});

}  // namespace turnstile::http
