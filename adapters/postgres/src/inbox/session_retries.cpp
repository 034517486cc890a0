// Stored retries in a session's transaction.

#include <algorithm>
#include <map>
#include <set>

#include "inbox/outbox.hpp"
#include "inbox/session.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

std::vector<ports::RetryTurn> Session::retry_turns(std::span<const ports::RetryQuestion> questions) {
  std::vector<const ports::RetryRef*> back;
  std::vector<std::string_view> keys;
  for (const auto& question : questions) {
    if (question.back) back.push_back(&*question.back);
    else if (question.key) keys.push_back(*question.key);
  }
  std::size_t first = 0;
  const auto kept = run_own([&](Pipeline& pipeline) {
    ArgumentBlock& to = pipeline.arguments();
    const auto ask = [&](const std::string& sql, auto add) {
      to.add_int(handler_.value);
      add();
      pipeline.add(sql, kCaller, Pipeline::Keep::binary);
    };
    if (!back.empty()) {
      ask(shared_->statements.locked_retries,
          [&] { add_int8_array(to, back.size(), [&](std::size_t i) { return std::optional(back[i]->number); }); });
    }
    ask(shared_->statements.stored_retries, [&] {
      add_uuid_array(to, questions.size(), [&](std::size_t i) -> const MessageId& { return questions[i].id; });
    });
    if (!keys.empty()) {
      ask(shared_->statements.retry_keys,
          [&] { add_bytea_array(to, keys.size(), [&](std::size_t i) { return std::optional(keys[i]); }); });
    }
  });
  // A database that was restored counts rows anew, so the number alone does not name a message.
  std::map<std::int64_t, std::pair<std::int64_t, MessageId>> rows_of;
  if (!back.empty()) {
    const PGresult* rows = kept[first++].get();
    for (int row = 0; row < PQntuples(rows); ++row)
      rows_of[int64_in(rows, row, 0)] = {int64_in(rows, row, 1), id_in(rows, row, 2)};
  }
  std::set<MessageId> stored;
  const PGresult* rows = kept[first++].get();
  for (int row = 0; row < PQntuples(rows); ++row) stored.insert(id_in(rows, row));
  std::set<std::string_view> waiting;
  if (!keys.empty()) {
    rows = kept[first].get();
    for (int row = 0; row < PQntuples(rows); ++row)
      waiting.insert(keys[static_cast<std::size_t>(int64_in(rows, row, 0) - 1)]);
  }
  std::vector<ports::RetryTurn> turns;
  for (const auto& question : questions) {
    if (question.back) {
      const auto row = rows_of.find(question.back->number);
      const bool expected = row != rows_of.end() &&
                            row->second == std::pair<std::int64_t, MessageId>(question.back->attempts, question.id);
      turns.push_back(expected ? ports::RetryTurn::runs : ports::RetryTurn::over);
    } else if (stored.contains(question.id)) {
      turns.push_back(ports::RetryTurn::stored);
    } else {
      turns.push_back(question.key && waiting.contains(*question.key) ? ports::RetryTurn::behind
                                                                      : ports::RetryTurn::runs);
    }
  }
  return turns;
}

void Session::take_back(const MessageId& id) {
  require_open("take_back()");
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(handler_.value);
  add_uuid(to, id);
  queue_own(shared_->statements.take_back_id);
}

void Session::defer_retry(const ports::DeferredRetry& retry) {
  require_open("defer_retry()");
  if (!fence_) throw Error(Code::api_misused, "defer_retry() needs a transaction with a fence");
  take_back(retry.id);
  if (retry.back) return defer_again(retry);
  ArgumentBlock& to = loan_->pipeline.arguments();
  const OwnedMessage& record = retry.record;
  if (retry.in_order && record.key) {
    to.add_int(handler_.value);
    add_bytea(to, record.key);
    queue_own(shared_->statements.lock_retry_key);
  }
  const auto& headers = record.headers;
  to.add_int(handler_.value);
  add_uuid(to, retry.id);
  to.add_int(fence_->slot);
  to.add_int(retry.incarnation);
  to.add_int(record.offset);
  to.add_int(retry.attempts);
  to.add_int(retry.delay.count());
  to.add_text(retry.in_order ? "t" : "f");
  to.add_int(outbox_shard(record, retry.id));
  to.add_text(record.topic);
  to.add_int(record.partition);
  add_bytea(to, record.key);
  add_bytea(to, record.payload);
  add_bytea_array(to, headers.size(), [&](std::size_t i) { return std::optional<std::string_view>(headers[i].name); });
  add_bytea_array(to, headers.size(), [&](std::size_t i) { return std::optional<std::string_view>(headers[i].value); });
  add_record_time(to, record.timestamp);
  to.add_text(printable(retry.error));
  queue_own(shared_->statements.add_retry);
}

void Session::defer_again(const ports::DeferredRetry& retry) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(handler_.value);
  to.add_int(retry.back->number);
  to.add_int(retry.back->attempts);
  to.add_int(retry.attempts);
  to.add_int(retry.delay.count());
  to.add_text(printable(retry.error));
  queue_own(shared_->statements.defer_again);
}

void Session::end_retry(const ports::RetryRef& retry) {
  require_open("end_retry()");
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(handler_.value);
  to.add_int(retry.number);
  to.add_int(retry.attempts);
  queue_own(shared_->statements.end_retry);
}

}  // namespace turnstile::postgres
