// Ids that have taken effect, stored responses, and messages for the outbox.

#include <algorithm>
#include <map>

#include "inbox/calls.hpp"
#include "inbox/outbox.hpp"
#include "inbox/session.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/errors.hpp"

namespace turnstile::postgres {

void Session::respond(const MessageId& id, std::string_view body) {
  require_open("respond()");
  check_role();
  if (const auto request = requests_.find(id); request != requests_.end())
    return respond_request(request->second, body);
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(handler_.value);
  add_uuid(to, id);
  to.add(Param(std::as_bytes(std::span(body))));
  queue_own(shared_->statements.respond);
}

void Session::publish(const OwnedMessage& message, const MessageId& id) {
  require_open("publish()");
  check_role();
  const auto& headers = message.headers;
  const auto shard = outbox_shard(message, id);
  const bool scheduled = is_scheduled_now(message);
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(shard);
  add_uuid(to, id);
  to.add(Param(message.topic));
  add_bytea(to, message.key);
  add_bytea(to, message.payload);
  add_bytea_array(to, headers.size(), [&](std::size_t i) { return std::optional<std::string_view>(headers[i].name); });
  add_bytea_array(to, headers.size(), [&](std::size_t i) { return std::optional<std::string_view>(headers[i].value); });
  if (!scheduled) return queue_own(shared_->statements.publish);
  to.add_int(message.not_before->time_since_epoch().count());
  queue_own(shared_->statements.schedule);
}

std::vector<Result> Session::run_own(const std::function<void(Pipeline&)>& fill) {
  require_open("run_own()");
  check_role();
  fill(loan_->pipeline);
  return send_and_read().kept;
}

void Session::queue_own(const std::string& sql) {
  with_connection([&] { loan_->pipeline.add(sql, message_); });
}

std::vector<bool> Session::settled(HandlerId handler, const std::optional<Fence>& fence,
                                   std::span<const MessageId> ids) {
  std::vector<bool> found(ids.size(), false);
  if (ids.empty()) return found;
  const Result rows = look_up(shared_->statements.settled, handler, ids, [&](ArgumentBlock& to) {
    if (fence) to.add_int(fence->history);
    else to.add_null(0);
  });
  std::vector<MessageId> present;
  for (int row = 0; row < PQntuples(rows.get()); ++row) present.push_back(id_in(rows.get(), row));
  std::sort(present.begin(), present.end());
  for (std::size_t i = 0; i < ids.size(); ++i) found[i] = std::binary_search(present.begin(), present.end(), ids[i]);
  return found;
}

std::vector<std::optional<std::string>> Session::responses(HandlerId handler, std::span<const MessageId> ids) {
  std::vector<std::optional<std::string>> found(ids.size());
  if (ids.empty()) return found;
  if (loan_) check_role();
  if (loan_ && !requests_.empty()) return request_responses(ids);
  Result rows;
  if (!loan_) {
    rows = look_up(shared_->statements.responses, handler, ids);
  } else {
    ArgumentBlock& to = loan_->pipeline.arguments();
    to.add_int(handler.value);
    add_uuid_array(to, ids.size(), [&](std::size_t i) -> const MessageId& { return ids[i]; });
    loan_->pipeline.add(shared_->statements.responses, kCaller, Pipeline::Keep::binary);
    rows = std::move(send_and_read().kept.back());
  }
  std::map<MessageId, int> row_of;
  for (int row = 0; row < PQntuples(rows.get()); ++row) row_of[id_in(rows.get(), row)] = row;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (const auto row = row_of.find(ids[i]); row != row_of.end()) found[i] = bytes_in(rows.get(), row->second, 1);
  }
  return found;
}

/// Outside of any transaction, on a connection of its own.
Result Session::look_up(const std::string& sql, HandlerId handler, std::span<const MessageId> ids,
                        const std::function<void(ArgumentBlock&)>& add_more) {
  auto kept = call(*shared_, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(handler.value);
    add_uuid_array(pipeline.arguments(), ids.size(), [&](std::size_t i) -> const MessageId& { return ids[i]; });
    if (add_more) add_more(pipeline.arguments());
    pipeline.add(sql, kCaller, Pipeline::Keep::binary);
  });
  return std::move(kept.back());
}

}  // namespace turnstile::postgres
