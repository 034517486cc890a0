// Batches of messages that the partition or their producers number. There are rows for partitions and producers, none
// for messages.

#include <set>

#include "inbox/session.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/errors.hpp"

namespace turnstile::postgres {

namespace {

/// A time in milliseconds. Absent for NULL.
std::optional<Timestamp> optional_time_in(const PGresult* rows, int row, int column) {
  if (PQgetisnull(rows, row, column)) return std::nullopt;
  return Timestamp(std::chrono::milliseconds(int64_in(rows, row, column)));
}

}  // namespace

std::vector<ports::Admission> Session::admit_numbered(const ports::InboxScope& scope,
                                                      std::span<const ports::InboxEntry> entries) {
  if (!scope.fence)
    throw Error(Code::api_misused,
                "numbered messages belong to a partition, so the scope needs the fence of that partition");
  const bool by_requests = scope.mode == Mode::numbered;
  slot_ = scope.fence->slot;
  window_ = scope.window;
  add_progress(scope, entries.back().offset + 1);
  if (by_requests) {
    std::set<MessageId> producers;
    for (const ports::InboxEntry& entry : entries) producers.insert(entry.request.value().producer);
    add_window_key();
    auto producer = producers.begin();
    add_uuid_array(loan_->pipeline.arguments(), producers.size(),
                   [&](std::size_t) -> const MessageId& { return *producer++; });
    loan_->pipeline.add(shared_->statements.read_windows, kCaller, Pipeline::Keep::binary);
  }
  const Answers answers = finish();
  if (PQntuples(answers.kept[0].get()) == 0) throw_fenced(*scope.fence);
  const Offset next = int64_in(answers.kept[1].get(), 0, 0);
  if (by_requests) return admit_requests(entries, next, answers.kept[2].get());
  std::vector<ports::Admission> admissions;
  for (const ports::InboxEntry& entry : entries)
    admissions.push_back(entry.offset < next ? ports::Admission::duplicate : ports::Admission::fresh);
  return admissions;
}

/// Checks the fence, and inserts the partition's row if it is missing. Then locks and moves it.
void Session::add_progress(const ports::InboxScope& scope, Offset next) {
  const Statements& sql = shared_->statements;
  Pipeline& pipeline = loan_->pipeline;
  ArgumentBlock& to = pipeline.arguments();
  add_scope(scope);
  to.add_int(scope.incarnation);
  pipeline.add(sql.add_progress, kCaller, Pipeline::Keep::text);
  add_window_key();
  to.add_int(scope.incarnation);
  pipeline.add(sql.lock_progress, kCaller, Pipeline::Keep::binary);
  add_window_key();
  to.add_int(scope.incarnation);
  to.add_int(next);
  pipeline.add(sql.move_progress, kCaller);
}

void Session::add_window_key() {
  loan_->pipeline.arguments().add_int(handler_.value);
  loan_->pipeline.arguments().add_int(slot_);
}

std::vector<ports::Admission> Session::admit_requests(std::span<const ports::InboxEntry> entries, Offset next,
                                                      const PGresult* rows) {
  RequestWindows book;
  for (int row = 0; row < PQntuples(rows); ++row) {
    const auto window = [&] {
      if (PQgetisnull(rows, row, 2)) return RequestWindow(window_);
      return RequestWindow(window_, {int64_in(rows, row, 2), int64_in(rows, row, 3), int64_in(rows, row, 4),
                                     std::string(bytes_in(rows, row, 5))});
    };
    book.add(id_in(rows, row), {optional_time_in(rows, row, 1), window()});
  }
  std::vector<ports::Admission> admissions;
  for (const ports::InboxEntry& entry : entries) {
    requests_.emplace(entry.id, *entry.request);
    admissions.push_back(entry.offset < next ? ports::Admission::duplicate : book.admit(*entry.request));
  }
  move_windows(book);
  return admissions;
}

/// Sent together with the handlers' statements.
void Session::move_windows(const RequestWindows& book) {
  std::vector<const std::pair<const MessageId, RequestWindows::Row>*> moved;
  for (const auto& row : book.rows()) {
    if (row.second.changed) moved.push_back(&row);
  }
  if (moved.empty()) return;
  Pipeline& pipeline = loan_->pipeline;
  ArgumentBlock& to = pipeline.arguments();
  const auto producer = [&](std::size_t i) -> const MessageId& { return moved[i]->first; };
  const auto kept = [&](std::size_t i) -> const RequestWindow::Kept& { return moved[i]->second.window.kept(); };
  add_window_key();
  add_uuid_array(to, moved.size(), producer);
  add_int8_array(to, moved.size(), [&](std::size_t i) { return std::optional(kept(i).high); });
  add_int8_array(to, moved.size(), [&](std::size_t i) { return std::optional(kept(i).low); });
  add_int8_array(to, moved.size(), [&](std::size_t i) { return std::optional(kept(i).acked); });
  add_bytea_array(to, moved.size(), [&](std::size_t i) { return std::optional<std::string_view>(kept(i).seen); });
  pipeline.add(shared_->statements.move_windows, kCaller);
  add_window_key();
  add_uuid_array(to, moved.size(), producer);
  add_int8_array(to, moved.size(), [&](std::size_t i) { return std::optional(moved[i]->second.window.forgotten()); });
  pipeline.add(shared_->statements.drop_responses, kCaller);
}

void Session::respond_request(const ports::Request& request, std::string_view body) {
  ArgumentBlock& to = loan_->pipeline.arguments();
  add_window_key();
  add_uuid(to, request.producer);
  to.add_int(request.number);
  to.add(Param(std::as_bytes(std::span(body))));
  queue_own(shared_->statements.respond_request);
}

std::vector<std::optional<std::string>> Session::request_responses(std::span<const MessageId> ids) {
  const auto request = [&](std::size_t i) -> const ports::Request& { return requests_.at(ids[i]); };
  ArgumentBlock& to = loan_->pipeline.arguments();
  add_window_key();
  add_uuid_array(to, ids.size(), [&](std::size_t i) -> const MessageId& { return request(i).producer; });
  add_int8_array(to, ids.size(), [&](std::size_t i) { return std::optional(request(i).number); });
  loan_->pipeline.add(shared_->statements.request_responses, kCaller, Pipeline::Keep::binary);
  const Answers answers = send_and_read();
  const PGresult* rows = answers.kept.back().get();
  std::map<std::pair<MessageId, std::int64_t>, std::string> bodies;
  for (int row = 0; row < PQntuples(rows); ++row)
    bodies.emplace(std::pair(id_in(rows, row), int64_in(rows, row, 1)), bytes_in(rows, row, 2));
  std::vector<std::optional<std::string>> found(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const auto body = bodies.find({request(i).producer, request(i).number});
    if (body != bodies.end()) found[i] = body->second;
  }
  return found;
}

}  // namespace turnstile::postgres
