#include "turnstile/inbox.hpp"

#include <mutex>
#include <stdexcept>

#include "message/message_id.hpp"
#include "support/failpoint.hpp"
#include "support/id_or_new.hpp"
#include "turnstile/error.hpp"

namespace turnstile {

namespace {

using Clock = std::chrono::steady_clock;

/// A shorter lock_timeout would also fail short waits for the table itself, which are not caused by a concurrent call.
constexpr std::chrono::milliseconds kShortestWait{50};
/// Claims are counted this often for a handler, because the count reads all of them.
constexpr std::chrono::seconds kLookForClaims{30};

/// Puts what an effect replies and publishes into its transaction.
class Outlet final : public Outgoing {
 public:
  Outlet(ports::InboxSession& session, const MessageId& id, std::string_view handler, std::size_t max_response)
      : session_(session), id_(id), handler_(handler), max_response_(max_response) {}

  void reply(const Message* to, std::string_view body) override {
    const std::string who = "the effect of handler '" + std::string(handler_) + "' ";
    if (to != nullptr)
      throw std::logic_error(who + "replied to a message, but once() runs without a message; use ctx.reply(body)");
    if (response_) throw std::logic_error(who + "replied twice");
    if (body.size() > max_response_) {
      throw ResponseTooLarge("the response has " + std::to_string(body.size()) +
                             " bytes, more than OnceOptions::max_response (" + std::to_string(max_response_) +
                             "); raise max_response, or reply with less");
    }
    session_.respond(id_, body);
    response_ = body;
  }
  void publish(const OwnedMessage& message) override { session_.publish(message, detail::id_or_new(message)); }

  std::optional<std::string> response_;

 private:
  ports::InboxSession& session_;
  const MessageId& id_;
  std::string_view handler_;
  std::size_t max_response_;
};

Once seen_before(const Recorded& recorded, const ports::InboxEntry& entry) {
  if (entry.differs_from(recorded.fingerprint)) return {Once::Kind::mismatch, std::nullopt};
  return {Once::Kind::repeated, recorded.response};
}

MessageId message_id(std::string_view handler, std::string_view id) {
  if (!id.empty()) return MessageId::from(id);
  throw Error(
      Code::api_misused,
      "handler '" + std::string(handler) +
          "': the id is empty, so all requests without an id would be duplicates of each other; reject such a request, "
          "or give it an id");
}

ports::InboxEntry entry_of(std::string_view handler, std::string_view id, const OnceOptions& options) {
  ports::InboxEntry entry{.id = message_id(handler, id)};
  if (options.body) entry.fingerprint = detail::fingerprint(*options.body);
  return entry;
}

}  // namespace

Once Inbox::once(std::string_view handler, std::string_view id, const Effect& effect, const OnceOptions& options) {
  const ports::InboxEntry entry = entry_of(handler, id, options);
  const HandlerId number = id_without_claims(handler);
  const auto deadline = Clock::now() + options.wait;
  for (;;) {
    // Most repeats find their id done: that takes one statement and no transaction.
    if (const auto recorded = store_->find(number, entry.id)) return seen_before(*recorded, entry);
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    const ports::InboxScope scope{number, std::nullopt, std::max(left, kShortestWait), options.idle_timeout};
    const auto session = store_->open_session();
    bool began = false;
    try {
      const ports::Admission admission = session->begin(scope, {&entry, 1}).at(0);
      began = true;
      if (admission != ports::Admission::fresh) continue;  // a concurrent transaction has just committed it
      Outlet outlet(*session, entry.id, handler, options.max_response);
      Context context({.tx = &session->transaction(), .outgoing = &outlet, .message_id = entry.id, .handler = handler});
      effect(context);
      TURNSTILE_FAILPOINT("once-before-commit");
      session->commit();
      TURNSTILE_FAILPOINT("once-after-commit");
      return {Once::Kind::ran, std::move(outlet.response_)};
    } catch (const StoreBusy&) {
      if (Clock::now() < deadline) continue;
      if (began) throw;
      return {Once::Kind::running, std::nullopt};
    } catch (const CommitInDoubt&) {
      // Checks again. If the transaction may still commit, begin() waits for it.
    }
  }
}

Once Inbox::once(Transaction& transaction, std::string_view handler, std::string_view id, const Effect& effect,
                 const OnceOptions& options) {
  const ports::InboxEntry entry = entry_of(handler, id, options);
  const HandlerId number = id_without_claims(handler);
  const auto session = store_->join(transaction);
  const ports::Admission admission = session->begin({.handler = number}, {&entry, 1}).at(0);
  if (admission == ports::Admission::mismatch) return {Once::Kind::mismatch, std::nullopt};
  if (admission != ports::Admission::fresh)
    return {Once::Kind::repeated, session->responses(number, {&entry.id, 1}).at(0)};
  Outlet outlet(*session, entry.id, handler, options.max_response);
  Context context({.tx = &transaction, .outgoing = &outlet, .message_id = entry.id, .handler = handler});
  effect(context);
  return {Once::Kind::ran, std::move(outlet.response_)};
}

std::optional<Recorded> Inbox::check(std::string_view handler, std::string_view id) {
  return store_->find(id_of(handler), message_id(handler, id));
}

namespace {
Inbox::Effect reply_with(std::optional<std::string_view> response) {
  return [response](Context& context) {
    if (response) context.reply(*response);
  };
}
}  // namespace

bool Inbox::record(std::string_view handler, std::string_view id, std::optional<std::string_view> response) {
  OnceOptions options;
  if (response) options.max_response = response->size();
  const Once recorded = once(handler, id, reply_with(response), options);
  if (recorded.kind == Once::Kind::running)
    throw StoreBusy("handler '" + std::string(handler) + "': a concurrent transaction holds this id; try again");
  return recorded.kind == Once::Kind::ran;
}

bool Inbox::record(Transaction& transaction, std::string_view handler, std::string_view id,
                   std::optional<std::string_view> response) {
  OnceOptions options;
  if (response) options.max_response = response->size();
  return once(transaction, handler, id, reply_with(response), options).kind == Once::Kind::ran;
}

KeptIds Inbox::keep_ids(std::string_view handler, std::chrono::seconds keep_for) {
  return store_->retention().keep_ids(id_of(handler), keep_for);
}

HandlerId Inbox::id_of(std::string_view handler) {
  if (handler.empty())
    throw Error(Code::api_misused,
                "once(): the handler name is empty; give a name, such as \"charge\": it is the scope of the ids");
  {
    const std::shared_lock lock(mutex_);
    if (const auto known = handlers_.find(handler); known != handlers_.end()) return known->second;
  }
  const HandlerId id = store_->register_handler(std::string(handler));
  const std::unique_lock lock(mutex_);
  return handlers_.try_emplace(std::string(handler), id).first->second;
}

/// A claim of mode leased is no id of the inbox, so what runs under it, or may have taken effect, would run again.
HandlerId Inbox::id_without_claims(std::string_view handler) {
  const HandlerId id = id_of(handler);
  const auto now = Clock::now();
  {
    const std::shared_lock lock(mutex_);
    const auto looked = looked_for_claims_.find(id);
    if (looked != looked_for_claims_.end() && now < looked->second + kLookForClaims) return id;
  }
  const ports::ClaimCounts claims = store_->claims()->count(id);
  if (claims.running + claims.in_doubt + claims.parked > 0) {
    throw Error(
        Code::api_misused,
        "handler '" + std::string(handler) + "' has claims of mode leased: " + std::to_string(claims.running) +
            " running, " + std::to_string(claims.in_doubt) + " in doubt, " + std::to_string(claims.parked) +
            " parked. once() and record() do not look at single claims, so an effect could happen twice; nothing "
            "was run. Give them a handler name that no topic in mode leased has");
  }
  const std::unique_lock lock(mutex_);
  looked_for_claims_.insert_or_assign(id, now);
  return id;
}

}  // namespace turnstile
