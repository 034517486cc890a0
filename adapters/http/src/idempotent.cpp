#include "turnstile/http/idempotent.hpp"

#include "endpoint.hpp"
#include "request_text.hpp"

namespace turnstile::http {

namespace {

Key find_key(const httplib::Request& request, std::size_t max) {
  const auto values = header_values(request, "Idempotency-Key");
  if (values.empty()) return Malformed{"Idempotency-Key is missing; send a new key for each operation, such as a UUID"};
  if (values.size() > 1) return Malformed{"Idempotency-Key appears more than once; send it once"};
  return parse_key(values.front(), max);
}

}  // namespace

httplib::Server::Handler idempotent(Inbox& inbox, std::string handler, Effect effect, Options options) {
  if (!options.wait) options.wait = std::chrono::milliseconds(0);
  const auto find = [max = options.max_key](const httplib::Request& request) { return find_key(request, max); };
  return handler_of(std::make_shared<Endpoint>(inbox, std::move(handler), find,
                                               Words{.it = "this Idempotency-Key",
                                                     .again = "send the request again with the same Idempotency-Key",
                                                     .anew = "use a new key for each operation"},
                                               std::move(effect), std::move(options)));
}

}  // namespace turnstile::http
