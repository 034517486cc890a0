#include "turnstile/postgres/store.hpp"

#include "inbox/calls.hpp"
#include "inbox/claims.hpp"
#include "inbox/dead_letters.hpp"
#include "inbox/joined_session.hpp"
#include "inbox/outbox.hpp"
#include "inbox/partitions.hpp"
#include "inbox/pauses.hpp"
#include "inbox/producers.hpp"
#include "inbox/retention_calls.hpp"
#include "inbox/session.hpp"
#include "inbox/trials.hpp"
#include "migrations/schema.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

class PostgresStore final : public ports::Store {
 public:
  explicit PostgresStore(const PostgresSettings& settings) : shared_(std::make_shared<Shared>(settings)) {}

  void cut(bool now) noexcept override {
    *shared_->cut = now;
    shared_->handlers.look_at_cut();
    shared_->calls.look_at_cut();
  }
  std::unique_ptr<ports::InboxSession> open_session() override { return std::make_unique<Session>(shared_); }
  std::unique_ptr<ports::InboxSession> join(Transaction& transaction) override {
    return postgres::join(shared_, transaction);
  }
  std::optional<Recorded> find(HandlerId handler, const MessageId& id) override;
  std::shared_ptr<ports::Claims> claims() override { return open_claims(shared_); }
  std::shared_ptr<ports::Producers> producers() override { return open_producers(shared_); }
  std::shared_ptr<ports::Outbox> outbox() override { return open_outbox(shared_); }
  std::shared_ptr<ports::Trials> trials() override { return open_trials(shared_); }
  std::shared_ptr<ports::Pauses> pauses() override { return open_pauses(shared_); }
  ports::Partitions& partitions() noexcept override { return *partitions_; }
  ports::DeadLetterStore& dead_letters() noexcept override { return *dead_letters_; }
  ports::Retention& retention() noexcept override { return *retention_; }
  void check_schema() override;
  HandlerId register_handler(const std::string& name) override;
  std::string first_group(HandlerId handler, const std::string& group) override;
  std::int64_t history() override;

 private:
  std::vector<Result> call(const Fill& fill) { return postgres::call(*shared_, fill); }

  std::shared_ptr<Shared> shared_;
  const std::shared_ptr<ports::Partitions> partitions_ = open_partitions(shared_);
  const std::shared_ptr<ports::DeadLetterStore> dead_letters_ = open_dead_letters(shared_);
  const std::shared_ptr<ports::Retention> retention_ = open_retention(shared_);
};

void PostgresStore::check_schema() {
  Pool::Loan link = shared_->calls.take();
  try {
    link->pipeline.leave();
    link->connection.patience(answer_within(shared_->settings, shared_->settings.lock_timeout));
    check_ledger(link->connection, shared_->settings);
  } catch (const ConnectionLost& lost) {
    if (!link->used || lost.unanswered) throw_lost(lost);
    link.reset();
    shared_->calls.renew();
    return check_schema();
  }
}

HandlerId PostgresStore::register_handler(const std::string& name) {
  const auto& sql = shared_->statements;
  for (;;) {
    for (const std::string* statement : {&sql.find_handler, &sql.register_handler}) {
      try {
        const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
          pipeline.arguments().add_text(name);
          pipeline.add(*statement, kCaller, Pipeline::Keep::text);
        });
        if (PQntuples(kept[0].get()) > 0) return {static_cast<std::int16_t>(number_at(kept[0], 0, 0))};
      } catch (const StoreFailed& error) {
        if (error.sqlstate != "22003") throw;
        throw Error(Code::api_misused, "handler \"" + name + "\": all 32,767 handler ids of the schema " +
                                           shared_->settings.schema +
                                           " are used; do not build handler names from values");
      }
    }
    // A concurrent transaction took the number, or the name, which then exists now.
  }
}

std::string PostgresStore::first_group(HandlerId handler, const std::string& group) {
  for (int tries = 0; tries < 10; ++tries) {
    const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      pipeline.arguments().add_int(handler.value);
      pipeline.arguments().add_text(group);
      pipeline.add(shared_->statements.first_group, kCaller, Pipeline::Keep::text);
    });
    if (PQntuples(kept[0].get()) > 0) return text_at(kept[0], 0, 0);
  }
  throw Error(Code::store_rewound, "handler number " + std::to_string(handler.value) +
                                       " is not in table handler of schema " + shared_->settings.schema +
                                       ", although it was there a moment ago; restart the program");
}

std::optional<Recorded> PostgresStore::find(HandlerId handler, const MessageId& id) {
  // From the connections of transactions: the caller opens one next if nothing is found.
  const auto kept = call_replicated(*shared_, shared_->handlers, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(handler.value);
    add_uuid(pipeline.arguments(), id);
    pipeline.add(shared_->statements.find, kCaller, Pipeline::Keep::binary);
  });
  const PGresult* row = kept[0].get();
  if (PQntuples(row) == 0) return std::nullopt;
  Recorded recorded;
  if (!PQgetisnull(row, 0, 0)) recorded.fingerprint = int64_in(row, 0, 0);
  if (!PQgetisnull(row, 0, 1)) recorded.response = bytes_in(row, 0, 1);
  return recorded;
}

std::int64_t PostgresStore::history() {
  const auto kept =
      call([&](Pipeline& pipeline) { pipeline.add(shared_->statements.history, kCaller, Pipeline::Keep::text); });
  return number_at(kept[0], 0, 0);
}

}  // namespace

std::shared_ptr<ports::Store> open_store(const PostgresSettings& settings) {
  check_settings(settings);
  return std::make_shared<PostgresStore>(settings);
}

}  // namespace turnstile::postgres
