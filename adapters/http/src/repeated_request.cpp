#include "repeated_request.hpp"

#include <optional>

#include "kept.hpp"
#include "problem.hpp"
#include "turnstile/log.hpp"

namespace turnstile::http {

namespace {

void replay(const Once& once, const Options& options, const std::string& place, httplib::Response& response) {
  auto kept = once.response ? decode(*once.response) : std::nullopt;
  if (kept) {
    add(std::move(*kept), response);
  } else if (!once.response) {
    response.status = 204;
  } else if (is_newer(*once.response)) {
    log_error(
        *options.log, Code::response_unreadable,
        place + ": answered with 500: a newer version of Turnstile stored its response, and this one cannot read it");
    return set_problem(
        response, 500,
        "the request took effect before, but this server cannot read its stored response; ask another server for it");
  } else {
    // Inbox::record() has written it: only the bytes of the response are known.
    response.status = 200;
    response.set_content(*once.response, "application/octet-stream");
  }
  response.set_header("Idempotent-Replayed", "true");
}

}  // namespace

void answer_repeated(const Once& once, const Words& words, const Options& options, const std::string& place,
                     httplib::Response& response) {
  switch (once.kind) {
    case Once::Kind::ran: return;
    case Once::Kind::repeated: return replay(once, options, place, response);
    case Once::Kind::mismatch:
      return set_problem(
          response, 422,
          words.it + " was used for a different request before: another method, target, content type or body; " +
              words.anew);
    case Once::Kind::running:
      return set_problem(response, 409, "a request with " + words.it + " is still running; " + words.again + " later",
                         options.retry_after);
  }
}

}  // namespace turnstile::http
