#pragma once
// One-time tokens for forms, for cpp-httplib. The server issues a token with the form, the form sends it back, and the
// first request with it runs. A form that is sent again (a double click, "reload") gets the first response, and takes
// effect once.
//
//   const auto tokens = turnstile::http::postgres_tokens(1h);                        // turnstile/postgres_tokens.hpp
//   server.Get("/form", [&](auto& request, auto& response) { … issue_token(*store, tokens, request) … });
//   server.Post("/form", turnstile::http::once_per_token(inbox, "form", tokens, effect));
//
// once_per_token() responds as idempotent() does, with the token in place of a key. Before the effect runs, it
// responds:
//
//   409  The token was redeemed, and its response is no longer stored (or another program redeemed it).
//   410  The token has expired, was never issued, or was issued for another subject: open the form again.

#include <httplib.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "turnstile/http/idempotent.hpp"
#include "turnstile/ports/store.hpp"
#include "turnstile/transaction.hpp"

namespace turnstile::http {

/// Whether a token was redeemed, and by which call.
enum class Redeemed : std::uint8_t {
  now,     ///< by this call: continue
  before,  ///< by an earlier call
  never,   ///< it has expired, is unknown, or belongs to another subject
};

/// The functions that issue and redeem tokens. They run in a transaction that they do not end. Several threads may call
/// them at once.
struct Tokens {
  /// A new token for the subject. It is valid once the transaction has committed.
  std::function<std::string(Transaction&, std::string_view subject)> issue;
  /// `token` comes from the request: any printable text.
  std::function<Redeemed(Transaction&, std::string_view token, std::string_view subject)> redeem;
  /// The subject of a token: the session and the form. It must return the same for the request that gets the form and
  /// for the request that sends it. Without it a token is valid for any client that has it.
  std::function<std::string(const httplib::Request&)> subject{};
  std::string field = "token";            ///< the form's field (urlencoded or multipart) with the token
  std::string header = "One-Time-Token";  ///< read if there is no such field; for scripts
};

/// A token for the form that is sent in response to `request`. Throws what the store and tokens.issue throw.
std::string issue_token(ports::Store& store, const Tokens& tokens, const httplib::Request& request);

/// The endpoint that issues tokens, for pages that fetch their token: {"token":"…"}, marked as not cacheable. 503 with
/// Retry-After while PostgreSQL is unavailable or too busy.
httplib::Server::Handler issue_tokens(std::shared_ptr<ports::Store> store, Tokens tokens);

/// The endpoint that redeems tokens. The token, the effect and the response are one transaction. Without options.scope,
/// tokens.subject is the scope.
httplib::Server::Handler once_per_token(Inbox& inbox, std::string handler, Tokens tokens, Effect effect,
                                        Options options = {});

}  // namespace turnstile::http
