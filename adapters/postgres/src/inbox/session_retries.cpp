// Stored retries in a session's transaction.

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "inbox/outbox.hpp"
#include "inbox/session.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

bool of_one_partition(const ports::DeferredRetry& one, const ports::DeferredRetry& other) {
  return one.slot == other.slot && one.record.topic == other.record.topic &&
         one.record.partition == other.record.partition && one.incarnation == other.incarnation &&
         one.in_order == other.in_order;
}

std::optional<std::string_view> view_of(const std::optional<std::string>& bytes) {
  return bytes ? std::optional<std::string_view>(*bytes) : std::nullopt;
}

/// `number_of` returns the number of an item.
template <class Items, class NumberOf>
void add_int8s(ArgumentBlock& to, const Items& items, NumberOf number_of) {
  add_int8_array(to, items.size(), [&](std::size_t i) { return std::optional<std::int64_t>(number_of(items[i])); });
}

/// `bytes_of` returns the bytes of an item, absent for NULL.
template <class Items, class BytesOf>
void add_byteas(ArgumentBlock& to, const Items& items, BytesOf bytes_of) {
  add_bytea_array(to, items.size(),
                  [&](std::size_t i) -> std::optional<std::string_view> { return bytes_of(items[i]); });
}

void add_errors(ArgumentBlock& to, const std::vector<const ports::DeferredRetry*>& all) {
  std::vector<std::string> errors;
  errors.reserve(all.size());
  for (const auto* retry : all) errors.push_back(printable(retry->error));
  add_byteas(to, errors, [](const std::string& error) { return std::optional<std::string_view>(error); });
}

/// Questions about records that came back, each about another row. The answer names the rows by their numbers only.
struct RowQuestions {
  std::vector<const ports::RetryQuestion*> in_order;
  std::map<std::int64_t, std::size_t> places;  ///< by number: the places among all questions
};

/// Records of different messages can name the same row, after a restore for example. At most one of them is the row's.
std::vector<RowQuestions> by_rows(std::span<const ports::RetryQuestion> questions) {
  std::vector<RowQuestions> rounds;
  for (std::size_t place = 0; place < questions.size(); ++place) {
    const auto& question = questions[place];
    if (!question.back) continue;
    auto round = rounds.begin();
    while (round != rounds.end() && round->places.contains(question.back->number)) ++round;
    if (round == rounds.end()) round = rounds.emplace(round);
    round->in_order.push_back(&question);
    round->places.emplace(question.back->number, place);
  }
  return rounds;
}

}  // namespace

std::vector<ports::RetryTurn> Session::retry_turns(std::span<const ports::RetryQuestion> questions) {
  const auto rounds = by_rows(questions);
  std::vector<const ports::RetryQuestion*> others;
  std::vector<std::string_view> keys;
  for (const auto& question : questions) {
    if (question.back) continue;
    others.push_back(&question);
    if (question.key) keys.push_back(*question.key);
  }
  const auto kept = run_own([&](Pipeline& pipeline) {
    ArgumentBlock& to = pipeline.arguments();
    const auto ask = [&](const std::string& sql, auto add) {
      to.add_int(handler_.value);
      add();
      pipeline.add(sql, kCaller, Pipeline::Keep::binary);
    };
    const auto ids_of = [&](const std::vector<const ports::RetryQuestion*>& of) {
      add_uuid_array(to, of.size(), [&](std::size_t i) -> const MessageId& { return of[i]->id; });
    };
    for (const auto& round : rounds) {
      ask(shared_->statements.locked_retries, [&] {
        add_int8s(to, round.in_order, [](const auto* question) { return question->back->number; });
        add_int8s(to, round.in_order, [](const auto* question) { return question->back->attempts; });
        ids_of(round.in_order);
      });
    }
    if (!others.empty()) ask(shared_->statements.stored_retries, [&] { ids_of(others); });
    if (!keys.empty()) {
      ask(shared_->statements.retry_keys,
          [&] { add_byteas(to, keys, [](std::string_view key) { return std::optional(key); }); });
    }
  });
  std::vector<ports::RetryTurn> turns(questions.size(), ports::RetryTurn::over);
  std::size_t next = 0;
  for (const auto& round : rounds) {
    const PGresult* rows = kept[next++].get();
    for (int row = 0; row < PQntuples(rows); ++row) {
      turns[round.places.at(int64_in(rows, row, 0))] =
          int64_in(rows, row, 1) != 0 ? ports::RetryTurn::behind : ports::RetryTurn::runs;
    }
  }
  std::set<MessageId> stored;
  if (!others.empty()) {
    const PGresult* rows = kept[next++].get();
    for (int row = 0; row < PQntuples(rows); ++row) stored.insert(id_in(rows, row));
  }
  std::set<std::string_view> waiting;
  if (!keys.empty()) {
    const PGresult* rows = kept[next].get();
    for (int row = 0; row < PQntuples(rows); ++row)
      waiting.insert(keys[static_cast<std::size_t>(int64_in(rows, row, 0) - 1)]);
  }
  for (std::size_t place = 0; place < questions.size(); ++place) {
    const auto& question = questions[place];
    if (question.back) continue;
    turns[place] = stored.contains(question.id)                      ? ports::RetryTurn::stored
                   : question.key && waiting.contains(*question.key) ? ports::RetryTurn::behind
                                                                     : ports::RetryTurn::runs;
  }
  return turns;
}

void Session::write_retries(const ports::RetryChanges& changes) {
  require_open("write_retries()");
  if (!fenced_) throw Error(Code::api_misused, "write_retries() needs a transaction with a fence");
  check_role();
  // No structured bindings: lambdas of Clang 14 cannot capture them.
  const auto& taken_back = changes.taken_back;
  const auto& deferred = changes.deferred;
  const auto& settled = changes.settled;
  ArgumentBlock& to = loan_->pipeline.arguments();
  if (!taken_back.empty() || !deferred.empty()) {
    to.add_int(handler_.value);
    add_uuid_array(to, taken_back.size() + deferred.size(), [&](std::size_t i) -> const MessageId& {
      return i < taken_back.size() ? taken_back[i] : deferred[i - taken_back.size()].id;
    });
    queue_own(shared_->statements.take_back_ids);
  }
  std::vector<const ports::DeferredRetry*> again, added;
  for (const auto& retry : deferred) {
    if (retry.back) {
      again.push_back(&retry);
      continue;
    }
    if (!added.empty() && !of_one_partition(*added.back(), retry)) add_retries(std::exchange(added, {}));
    added.push_back(&retry);
  }
  if (!added.empty()) add_retries(added);
  if (!again.empty()) defer_retries(again, settled);
  if (settled.empty()) return;
  to.add_int(handler_.value);
  add_int8s(to, settled, [](const auto& row) { return row.number; });
  add_int8s(to, settled, [](const auto& row) { return row.attempts; });
  queue_own(shared_->statements.end_retries);
}

/// All of one partition.
void Session::add_retries(const std::vector<const ports::DeferredRetry*>& all) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  const ports::DeferredRetry& first = *all.front();
  std::vector<const Header*> headers;
  std::vector<std::int64_t> headers_end;
  for (const auto* retry : all) {
    for (const Header& header : retry->record.headers) headers.push_back(&header);
    headers_end.push_back(static_cast<std::int64_t>(headers.size()));
  }
  to.add_int(handler_.value);
  add_uuid_array(to, all.size(), [&](std::size_t i) -> const MessageId& { return all[i]->id; });
  to.add_int(first.slot);
  to.add_int(first.incarnation);
  add_int8s(to, all, [](const auto* retry) { return retry->record.offset; });
  add_int8s(to, all, [](const auto* retry) { return retry->attempts; });
  add_int8s(to, all, [](const auto* retry) { return retry->delay.count(); });
  to.add_text(first.in_order ? "t" : "f");
  add_int8s(to, all, [](const auto* retry) { return outbox_shard(retry->record, retry->id); });
  to.add_text(first.record.topic);
  to.add_int(first.record.partition);
  add_byteas(to, all, [](const auto* retry) { return view_of(retry->record.key); });
  add_byteas(to, all, [](const auto* retry) { return view_of(retry->record.payload); });
  add_byteas(to, headers, [](const Header* header) { return std::optional<std::string_view>(header->name); });
  add_byteas(to, headers, [](const Header* header) { return view_of(header->value); });
  add_int8s(to, headers_end, [](std::int64_t end) { return end; });
  add_int8_array(to, all.size(), [&](std::size_t i) { return record_time(all[i]->record.timestamp); });
  add_errors(to, all);
  queue_own(shared_->statements.add_retries);
}

void Session::defer_retries(const std::vector<const ports::DeferredRetry*>& all,
                            std::span<const ports::RetryRef> settled) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  to.add_int(handler_.value);
  add_int8s(to, all, [](const auto* retry) { return retry->back->number; });
  add_int8s(to, all, [](const auto* retry) { return retry->back->attempts; });
  add_int8s(to, all, [](const auto* retry) { return retry->attempts; });
  add_int8s(to, all, [](const auto* retry) { return retry->delay.count(); });
  add_errors(to, all);
  add_int8s(to, settled, [](const auto& row) { return row.number; });
  queue_own(shared_->statements.defer_retries);
}

}  // namespace turnstile::postgres
