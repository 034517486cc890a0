#pragma once
// One-time tokens on cpp-httplib, for forms: the server issues a token with the form, the form sends it back, and the first to do so is
// served. A form that is sent again (a double click, "reload") is answered as the first time, and takes effect once.
//
//   const auto tokens = turnstile::http::postgres_tokens(1h);                        // turnstile/postgres_tokens.hpp
//   server.Get("/form", [&](auto& request, auto& response) { … issue_token(*store, tokens, request) … });
//   server.Post("/form", turnstile::http::once_per_token(inbox, "form", tokens, effect));
//
// once_per_token() answers as idempotent() does, by the token instead of a key, and before the effect runs:
//
//   409  the token was redeemed, and the answer of then is kept no more (or it was redeemed elsewhere)
//   410  the token's time is over, or it was never issued, or to somebody else: the form must be opened again

#include <httplib.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "turnstile/http/idempotent.hpp"
#include "turnstile/ports/inbox.hpp"
#include "turnstile/transaction.hpp"

namespace turnstile::http {

/// Whether a token was redeemed, and by which call.
enum class Redeemed : std::uint8_t {
  now,     ///< by this call: go on
  before,  ///< by an earlier one
  never,   ///< it is past its time, unknown, or somebody else's
};

/// Who issues and redeems. The calls run in a transaction that they do not end, and from several threads at once.
struct Tokens {
  /// A new token for the subject, good once the transaction has committed.
  std::function<std::string(Transaction&, std::string_view subject)> issue;
  /// `token` is what came with the request: any text that can be printed.
  std::function<Redeemed(Transaction&, std::string_view token, std::string_view subject)> redeem;
  /// What a token is for: the session and the form. Must say the same of the request that gets the form and of the one that sends it. Without
  /// it a token serves whoever has it.
  std::function<std::string(const httplib::Request&)> subject{};
  std::string field = "token";            ///< the form's field (urlencoded or multipart) that brings the token back
  std::string header = "One-Time-Token";  ///< looked at where there is no such field: for scripts
};

/// A token for the form that answers `request`. Throws what the store and tokens.issue throw.
std::string issue_token(InboxStore& store, const Tokens& tokens, const httplib::Request& request);

/// The endpoint that issues, for pages that fetch their token: {"token":"…"}, not to be cached. 503 while PostgreSQL is away.
httplib::Server::Handler issue_tokens(std::shared_ptr<InboxStore> store, Tokens tokens);

/// The endpoint that redeems: the token, the effect and the response are one transaction. Without options.scope, tokens.subject is it.
httplib::Server::Handler once_per_token(Inbox& inbox, std::string handler, Tokens tokens, Effect effect,
                                        Options options = {});

}  // namespace turnstile::http
