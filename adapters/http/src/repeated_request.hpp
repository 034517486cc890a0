#pragma once
// Decides the answer to a request whose key has come before: the stored response, a conflict, or a mismatch.

#include <httplib.h>

#include <string>

#include "turnstile/http/idempotent.hpp"
#include "turnstile/inbox.hpp"

namespace turnstile::http {

/// How messages to the client name what it has sent.
struct Words {
  std::string it;     ///< "this Idempotency-Key"
  std::string again;  ///< what to do if the result is unknown: "send the request again with the same Idempotency-Key"
  std::string anew;   ///< what to do if it is used up: "use a new key for each operation"
};

/// `once`: every kind but `ran`. `place` names the handler and the request in log lines.
void answer_repeated(const Once& once, const Words& words, const Options& options, const std::string& place,
                     httplib::Response& response);

}  // namespace turnstile::http
