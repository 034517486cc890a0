#include "turnstile/context.hpp"

#include <stdexcept>
#include <string>

#include "message/names.hpp"
#include "message/published_id.hpp"

namespace turnstile {

namespace {

std::logic_error without_transaction(std::string_view handler, Mode mode, const std::string& asked_for) {
  if (mode == Mode::leased) {
    return std::logic_error(
        "handler '" + std::string(handler) + "' " + asked_for +
        ", but in mode leased a handler runs outside a transaction; use a connection of your own, or "
        "transactional() if all effects of the handler are in PostgreSQL");
  }
  return std::logic_error("handler '" + std::string(handler) + "' " + asked_for +
                          ", but in mode at_least_once a handler has no transaction; add transactional() to its "
                          "decorators, or set mode = \"transactional\" for its topic");
}

}  // namespace

Transaction& Context::tx() const {
  if (fields_.tx == nullptr) throw without_transaction(fields_.handler, fields_.mode, "asked for a transaction");
  return *fields_.tx;
}

void Context::reply(std::string_view body) const {
  if (fields_.outgoing == nullptr) throw without_transaction(fields_.handler, fields_.mode, "replied");
  fields_.outgoing->reply(nullptr, body);
}

void Context::reply(const Message& to, std::string_view body) const {
  if (fields_.outgoing == nullptr) throw without_transaction(fields_.handler, fields_.mode, "replied");
  fields_.outgoing->reply(&to, body);
}

void Context::publish(const OwnedMessage& message) const {
  if (fields_.outgoing == nullptr) throw without_transaction(fields_.handler, fields_.mode, "published a message");
  const std::string asked_for = "handler '" + std::string(fields_.handler) + "' published a message";
  if (const auto problem = detail::check_topic_name(message.topic)) throw std::logic_error(asked_for + ": " + *problem);
  if (const auto problem = detail::check_published_id(message))
    throw std::logic_error(asked_for + " to topic '" + message.topic + "': " + *problem);
  fields_.outgoing->publish(message);
}

std::optional<TraceContext> Context::trace() const {
  if (fields_.trace != nullptr) return *fields_.trace;
  return fields_.message == nullptr ? std::nullopt : trace_of(*fields_.message);
}

}  // namespace turnstile
