#include "turnstile/http/tokens.hpp"

#include "endpoint.hpp"
#include "problem.hpp"
#include "request_text.hpp"
#include "turnstile/error.hpp"

namespace turnstile::http {

namespace {

std::string subject_of(const Tokens& tokens, const httplib::Request& request) {
  return tokens.subject ? tokens.subject(request) : std::string();
}

std::string brought_by(const httplib::Request& request, const Tokens& tokens) {
  if (request.has_param(tokens.field)) return request.get_param_value(tokens.field);
  if (request.has_file(tokens.field)) return request.get_file_value(tokens.field).content;
  return header_value(request, tokens.header);
}

Key find_token(const httplib::Request& request, const Tokens& tokens, std::size_t max) {
  Key token = check_key(brought_by(request, tokens), max);
  if (const auto* malformed = std::get_if<Malformed>(&token))
    return Malformed{"the one-time token " + malformed->why + "; open the form again"};
  return token;
}

/// Redeems the token first. A refused request is not stored: it would cost a row for any text that a client invents.
Effect guarded(const Tokens& tokens, std::size_t max, Effect effect) {
  return [=](const httplib::Request& request, httplib::Response& response, Context& context) {
    const std::string token = std::get<std::string>(find_token(request, tokens, max));
    switch (tokens.redeem(context.tx(), token, subject_of(tokens, request))) {
      case Redeemed::now: return effect(request, response, context);
      case Redeemed::before:
        throw Refused{409, "this form was sent before and took effect; open it again to send another form"};
      case Redeemed::never: throw Refused{410, "this form has expired; open it again"};
    }
  };
}

}  // namespace

std::string issue_token(ports::Store& store, const Tokens& tokens, const httplib::Request& request) {
  const auto session = store.open_session();
  session->begin({}, {});
  std::string token = tokens.issue(session->transaction(), subject_of(tokens, request));
  session->commit();
  return token;
}

httplib::Server::Handler issue_tokens(std::shared_ptr<ports::Store> store, Tokens tokens) {
  return [store = std::move(store), tokens = std::move(tokens)](const httplib::Request& request,
                                                                httplib::Response& response) {
    const auto ask_later = [&response] {
      set_problem(response, 503, "the database does not answer or is too busy; request a token again later",
                  std::chrono::seconds(1));
    };
    try {
      const std::string token = issue_token(*store, tokens, request);
      response.set_content(R"({"token":")" + token + "\"}\n", "application/json");
      response.set_header("Cache-Control", "no-store");
    } catch (const StoreUnavailable&) {
      ask_later();
    } catch (const StoreBusy&) {
      ask_later();
    }
  };
}

httplib::Server::Handler once_per_token(Inbox& inbox, std::string handler, Tokens tokens, Effect effect,
                                        Options options) {
  if (!options.wait) options.wait = std::chrono::seconds(5);
  if (!options.scope) options.scope = tokens.subject;
  const auto max = options.max_key;
  Effect redeeming = guarded(tokens, max, std::move(effect));
  const auto find = [tokens = std::move(tokens), max](const httplib::Request& request) {
    return find_token(request, tokens, max);
  };
  return handler_of(std::make_shared<Endpoint>(
      inbox, std::move(handler), find,
      Words{.it = "this one-time token", .again = "send the form again as it is", .anew = "open the form again"},
      std::move(redeeming), std::move(options)));
}

}  // namespace turnstile::http
