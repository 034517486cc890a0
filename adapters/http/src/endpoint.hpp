#pragma once
// An endpoint whose requests take effect once: the common part of idempotent() and once_per_token().

#include <atomic>
#include <string>

#include "kept.hpp"
#include "key.hpp"
#include "repeated_request.hpp"
#include "turnstile/error.hpp"
#include "turnstile/http/idempotent.hpp"

namespace turnstile::http {

/// An effect throws it to be rolled back, with a problem for the client that is not stored.
struct Refused {
  int status;
  const char* detail;
};

/// Thread-safe.
class Endpoint {
 public:
  using FindKey = std::function<Key(const httplib::Request&)>;

  /// `options.scope` and `options.wait` must be those of this endpoint.
  Endpoint(Inbox& inbox, std::string handler, FindKey find_key, Words words, Effect effect, Options options);
  void answer(const httplib::Request& request, httplib::Response& response);

 private:
  void answer_to(const std::string& key, const httplib::Request& request, httplib::Response& response);
  /// Runs the effect, and stores its response.
  void perform(const httplib::Request& request, Context& context, Kept& kept);
  void tell_failure(const httplib::Request& request, httplib::Response& response, const std::string& why);
  void tell_nothing_known(httplib::Response& response) const;
  void note_unavailable(const StoreUnavailable& why);
  void note_available();
  [[nodiscard]] std::string place(const httplib::Request& request) const;

  Inbox& inbox_;
  const std::string handler_;
  const FindKey find_key_;
  const Words words_;
  const Effect effect_;
  const Options options_;
  std::atomic<bool> unavailable_{false};  ///< whether the last request found PostgreSQL unavailable
};

/// Shared by all copies of the handler.
httplib::Server::Handler handler_of(std::shared_ptr<Endpoint> endpoint);

}  // namespace turnstile::http
