#include "inbox/dead_letters.hpp"

#include <string_view>
#include <utility>

#include "inbox/calls.hpp"
#include "turnstile/error.hpp"
#include "wire/encode.hpp"
#include "wire/text.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

class PostgresDeadLetters final : public ports::DeadLetterStore {
 public:
  explicit PostgresDeadLetters(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  bool record_dead(const ports::DeadMessage& message) override;
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override;

 private:
  const std::shared_ptr<Shared> shared_;
};

bool PostgresDeadLetters::record_dead(const ports::DeadMessage& message) {
  const auto& record = message.record;
  const auto& headers = record.headers;
  const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
    ArgumentBlock& to = pipeline.arguments();
    to.add_int(message.handler.value);
    to.add_int(message.fence.slot);
    to.add_int(message.fence.epoch.value);
    to.add_int(record.offset);
    if (message.id) add_uuid(to, *message.id);
    else to.add_null(kUuid);
    to.add_text(to_text(message.reason));
    to.add_text(printable(message.error));
    to.add_int(message.attempts);
    add_record_time(to, record.timestamp);
    add_bytea(to, record.key);
    add_bytea(to, record.payload);
    add_bytea_array(to, headers.size(),
                    [&](std::size_t i) { return std::optional<std::string_view>(headers[i].name); });
    add_bytea_array(to, headers.size(),
                    [&](std::size_t i) { return std::optional<std::string_view>(headers[i].value); });
    if (message.dead_letter) {
      to.add_text(message.dead_letter->at.topic);
      to.add_int(message.dead_letter->at.partition);
      to.add_int(message.dead_letter->offset);
    } else {
      for (int i = 0; i < 3; ++i) to.add_null(0);
    }
    to.add_int(message.fence.history);
    if (message.retry) {
      to.add_int(message.retry->number);
      to.add_int(message.retry->attempts);
    } else {
      for (int i = 0; i < 2; ++i) to.add_null(0);
    }
    pipeline.add(shared_->statements.record_dead, kCaller, Pipeline::Keep::text);
  });
  if (PQntuples(kept[0].get()) == 0) throw_fenced(message.fence);
  return number_at(kept[0], 0, 0) == 1;
}

std::set<Offset> PostgresDeadLetters::dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                                   std::optional<DeadReason> reason) {
  const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(handler.value);
    pipeline.arguments().add_int(fence.slot);
    pipeline.arguments().add_int(first);
    pipeline.arguments().add_int(last);
    pipeline.arguments().add_int(fence.history);
    if (!reason) pipeline.arguments().add_null(0);
    else pipeline.arguments().add_text(to_text(*reason));
    pipeline.add(shared_->statements.dead_between, kCaller, Pipeline::Keep::text);
  });
  std::set<Offset> offsets;
  for (int row = 0; row < PQntuples(kept[0].get()); ++row) offsets.insert(number_at(kept[0], row, 0));
  return offsets;
}

}  // namespace

std::shared_ptr<ports::DeadLetterStore> open_dead_letters(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresDeadLetters>(std::move(shared));
}

}  // namespace turnstile::postgres
