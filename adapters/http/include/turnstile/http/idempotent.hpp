#pragma once
// The header Idempotency-Key (draft-ietf-httpapi-idempotency-key-header) on cpp-httplib: a request that is sent again takes effect once,
// whichever process it reaches, and is answered as the first one was.
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
// The key is written as the draft says, "in quotes" with \" and \\ for those two, or bare, as most clients send it. (cpp-httplib, as in Debian 12,
// decodes %XX in headers before anybody sees them: a%41 and aA are one key.) What is answered:
//
//   the effect's own     status, headers and body, kept in the transaction of the effect; to a repeat bit for bit the same, with
//                        `Idempotent-Replayed: true`. Also what a client did wrong (4xx): a repeat would do it again
//   204, or 200 with what was recorded, and `Idempotent-Replayed: true`: Inbox::record() has said that the key is done
//   the effect's own 5xx nothing is kept and all is rolled back: a repeat runs
//   400                  no key, more than one, or one that cannot be read
//   409, Retry-After     a request with this key is at work, and was for longer than `wait`
//   413                  a body of more than `max_body` bytes
//   422                  the key came with another request: method, target with its query, content type or body
//   500                  the response cannot be kept: larger than `max_response`, or made by a content provider. All is rolled back
//   503, Retry-After     PostgreSQL is away, or too busy: nothing is known, send it again with the same key
//
// What is not the effect's own is application/problem+json (RFC 9457). What the effect throws goes on to the server's exception
// handler, as from any handler of cpp-httplib, and nothing is kept.
//
// cpp-httplib reads the whole body before anybody is asked: bound it with server.set_payload_max_length() too (it then answers 413 by
// itself). Each request that is waited for, by `wait` or in the database, has one of the server's threads.
//
// Keys are kept until inbox.keep_ids(handler, …) says otherwise: say it at start, and every day.

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

/// Endpoints and forms that take effect once, on cpp-httplib.
namespace turnstile::http {

/// What is to happen once. Fills a response of its own, which is added to what the server has set before. It may be called again when its
/// transaction is lost (see Inbox::Effect), with an empty response each time. From several threads at once. ctx.reply() is not for it.
using Effect = std::function<void(const httplib::Request&, httplib::Response&, Context&)>;

/// What an endpoint with keys may be told.
struct Options {
  /// Whose key it is: the user, as the request proves it. A key of one is no key of another. Called from several threads; what it throws goes
  /// on to the server. Without it all callers share their keys: who guesses or overhears a key, and sends the same request, reads the
  /// response. Right only where all callers may see the same.
  std::function<std::string(const httplib::Request&)> scope{};
  /// How long a rival with the same key is waited for. Absent: not at all for idempotent(), 5 s for once_per_token().
  std::optional<std::chrono::milliseconds> wait{};
  std::chrono::milliseconds lock_timeout{5'000};  ///< longest wait of the effect's statements for a lock; then 503
  std::size_t max_key = 255;                      ///< bytes of a key
  std::size_t max_body = 1024 * 1024;             ///< bytes of a request's body, or of all parts of a form
  std::size_t max_response = 64 * 1024;           ///< bytes of a response that is kept, its headers included
  std::chrono::seconds retry_after{1};            ///< said with 409 and 503
  std::shared_ptr<spdlog::logger> log{};  ///< told of each 500, and when PostgreSQL goes and comes; null: stderr
};

/// The handler for server.Post(), Put(), Patch() or Delete(). `handler` is the scope of its keys in the inbox, which must outlive the
/// server; two with one name share their keys.
httplib::Server::Handler idempotent(Inbox& inbox, std::string handler, Effect effect, Options options = {});

}  // namespace turnstile::http
