#include "endpoint.hpp"

#include <spdlog/logger.h>

#include <stdexcept>

#include "problem.hpp"
#include "request_text.hpp"
#include "turnstile/error.hpp"
#include "turnstile/log.hpp"

namespace turnstile::http {

namespace {

/// The effect's own 5xx: its transaction is rolled back, and its response is sent.
struct NotKept {};

struct CannotKeep : Error {
  explicit CannotKeep(const std::string& message) : Error(Code::response_not_kept, message) {}
};

/// Lets an effect publish messages, but not reply: its response is the reply.
class MessagesOnly final : public Outgoing {
 public:
  explicit MessagesOnly(const Context& context) : context_(context) {}
  void reply(const Message*, std::string_view) override {
    throw std::logic_error("the effect of handler '" + std::string(context_.handler()) +
                           "' called ctx.reply(); over HTTP its httplib::Response is what is kept and answered");
  }
  void publish(const OwnedMessage& message) override { context_.publish(message); }

 private:
  const Context& context_;
};

/// A key contains no NUL, so scope and key together are unambiguous, also against a key without a scope.
std::string id_of(const std::string& key, const Options& options, const httplib::Request& request) {
  return options.scope ? key + '\0' + options.scope(request) : key;
}

/// A header Range would cut the response, or make it thousands of times longer. HTTP allows a server to answer with
/// everything. cpp-httplib owns the request, which is not const, and reads the ranges after the handler.
void ignore_ranges(const httplib::Request& request) { const_cast<httplib::Request&>(request).ranges.clear(); }

Options completed(Options options) {
  if (!options.log) options.log = make_logger({});
  return options;
}

}  // namespace

Endpoint::Endpoint(Inbox& inbox, std::string handler, FindKey find_key, Words words, Effect effect, Options options)
    : inbox_(inbox),
      handler_(std::move(handler)),
      find_key_(std::move(find_key)),
      words_(std::move(words)),
      effect_(std::move(effect)),
      options_(completed(std::move(options))) {}

void Endpoint::answer(const httplib::Request& request, httplib::Response& response) {
  if (const auto bytes = body_bytes(request); bytes > options_.max_body) {
    return set_problem(response, 413,
                       "the body has " + std::to_string(bytes) + " bytes, more than the maximum of " +
                           std::to_string(options_.max_body) + "; send a smaller body");
  }
  const Key key = find_key_(request);
  if (const auto* malformed = std::get_if<Malformed>(&key)) return set_problem(response, 400, malformed->why);
  answer_to(std::get<std::string>(key), request, response);
}

void Endpoint::answer_to(const std::string& key, const httplib::Request& request, httplib::Response& response) {
  const std::string text = text_of(request);
  Kept kept;
  try {
    const Once once =
        inbox_.once(handler_, id_of(key, options_, request), [&](Context& context) { perform(request, context, kept); },
                    {.body = text, .wait = *options_.wait, .max_response = options_.max_response});
    if (once.kind == Once::Kind::ran) add(std::move(kept), response);
    else answer_repeated(once, words_, options_, place(request), response);
  } catch (const NotKept&) {
    add(std::move(kept), response);
  } catch (const Refused& refused) {
    set_problem(response, refused.status, refused.detail);
  } catch (const CannotKeep& cannot) {
    tell_failure(request, response, cannot.what());
  } catch (const StoreUnavailable& unavailable) {
    note_unavailable(unavailable);
    return tell_nothing_known(response);
  } catch (const StoreBusy& busy) {
    log_warning(*options_.log, Code::store_busy, place(request) + ": answered with 503: " + busy.what());
    tell_nothing_known(response);
  }
  note_available();
}

void Endpoint::perform(const httplib::Request& request, Context& context, Kept& kept) {
  // Until here the transaction's lock_timeout was the wait for a concurrent request. This is sent together with the
  // first statement.
  context.defer("SET LOCAL lock_timeout = '" + std::to_string(options_.lock_timeout.count()) + "ms'");
  MessagesOnly outgoing(context);
  Context inner({.tx = &context.tx(),
                 .outgoing = &outgoing,
                 .message_id = context.idempotency_key(),
                 .handler = context.handler()});
  httplib::Response made;
  effect_(request, made, inner);
  auto taken = taken_from(std::move(made));
  if (!taken)
    throw CannotKeep("the response comes from a content provider or a file, so it cannot be stored; use set_content()");
  kept = std::move(*taken);
  if (kept.status >= 500) throw NotKept{};
  const std::string bytes = encode(kept);
  if (bytes.size() > options_.max_response) {
    throw CannotKeep("the response has " + std::to_string(bytes.size()) +
                     " bytes with its headers, more than Options::max_response (" +
                     std::to_string(options_.max_response) + "); raise max_response, or respond with less");
  }
  context.reply(bytes);
}

void Endpoint::tell_failure(const httplib::Request& request, httplib::Response& response, const std::string& why) {
  log_error(*options_.log, Code::response_not_kept,
            place(request) + ": answered with 500, and what this request did was rolled back: " + why);
  set_problem(
      response, 500,
      "the server could not store the response, so the request took no effect; the server's log gives the reason");
}

void Endpoint::tell_nothing_known(httplib::Response& response) const {
  set_problem(response, 503,
              "the database does not answer, so it is unknown whether the request took effect; " + words_.again +
                  ": it takes effect once",
              options_.retry_after);
}

void Endpoint::note_unavailable(const StoreUnavailable& why) {
  if (unavailable_.exchange(true)) return;
  log_warning(*options_.log, why.code(),
              "handler '" + handler_ + "': answers with 503 until PostgreSQL is back: " + why.what());
}

void Endpoint::note_available() {
  if (unavailable_.load(std::memory_order_relaxed) && unavailable_.exchange(false))
    options_.log->info("handler '{}': PostgreSQL is back", handler_);
}

/// Without the query, which may contain secrets.
std::string Endpoint::place(const httplib::Request& request) const {
  return "handler '" + handler_ + "', " + request.method + ' ' + request.path;
}

httplib::Server::Handler handler_of(std::shared_ptr<Endpoint> endpoint) {
  return [endpoint = std::move(endpoint)](const httplib::Request& request, httplib::Response& response) {
    ignore_ranges(request);
    endpoint->answer(request, response);
  };
}

}  // namespace turnstile::http
