#include "inbox/outbox.hpp"

#include <algorithm>

#include "inbox/calls.hpp"
#include "turnstile/error.hpp"
#include "turnstile/replay.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

std::optional<std::string> optional_bytes(const PGresult* result, int row, int column) {
  if (PQgetisnull(result, row, column)) return std::nullopt;
  return std::string(bytes_in(result, row, column));
}

ports::OutboxRecord record_in(const PGresult* rows, int row) {
  ports::OutboxRecord record;
  record.shard = static_cast<ports::OutboxShard>(int64_in(rows, row, 0));
  record.id = int64_in(rows, row, 1);
  OwnedMessage& message = record.message;
  message.partition = -1;
  message.topic = bytes_in(rows, row, 3);
  message.key = optional_bytes(rows, row, 4);
  message.payload = optional_bytes(rows, row, 5);
  // Any role with the right to insert may have written the row, or a table without the current constraints may have
  // accepted it.
  auto names = bytea_array_in(bytes_in(rows, row, 6)), values = bytea_array_in(bytes_in(rows, row, 7));
  if (!names || !values || names->size() != values->size() ||
      std::count(names->begin(), names->end(), std::nullopt) > 0) {
    record.unreadable =
        "header_names and header_values of its row must be two one-dimensional lists of the same length, with a name for "
        "each header. Correct them (UPDATE outbox SET header_names = …, header_values = … WHERE shard = -1 AND id = " +
        std::to_string(record.id) + ").";
    return record;
  }
  for (std::size_t i = 0; i < names->size(); ++i)
    message.headers.push_back({*std::move((*names)[i]), std::move((*values)[i])});
  ports::put_id(message, id_in(rows, row, 2));
  return record;
}

/// The message as the relay sends it: its own headers, and those that make the record a replay of it.
ports::OutboxRecord retry_in(const PGresult* rows, int row) {
  ports::OutboxRecord record = record_in(rows, row);
  record.due_us = int64_in(rows, row, 8);
  constexpr std::string_view of_replay[] = {kReplayedFrom, kReplayedFor, kRetry, kReplayedGroup};
  int column = 9;
  for (const auto name : of_replay) {
    if (auto value = optional_bytes(rows, row, column++))
      record.message.headers.push_back({std::string(name), std::move(value)});
  }
  return record;
}

class PostgresOutbox final : public ports::Outbox {
 public:
  explicit PostgresOutbox(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<ports::OutboxShard> keep_shards(const std::string& owner, std::chrono::milliseconds lease) override {
    const auto kept = call(*shared_, [&](Pipeline& pipeline) {
      pipeline.arguments().add(Param(owner));
      pipeline.arguments().add_int(lease.count());
      pipeline.add(sql().keep_shards, kCaller, Pipeline::Keep::binary);
    });
    std::vector<ports::OutboxShard> shards;
    for (int row = 0; row < PQntuples(kept[0].get()); ++row)
      shards.push_back(static_cast<ports::OutboxShard>(int64_in(kept[0].get(), row, 0)));
    std::sort(shards.begin(), shards.end());
    return shards;
  }

  void leave_shards(const std::string& owner) override {
    call(*shared_, [&](Pipeline& pipeline) {
      pipeline.arguments().add(Param(owner));
      pipeline.add(sql().leave_shards, kCaller);
    });
  }

  std::vector<ports::OutboxRecord> waiting(std::span<const ports::OutboxShard> shards, std::size_t most,
                                           std::size_t bytes) override {
    if (shards.empty()) return {};
    const auto part_of = [&](std::size_t all) {
      return static_cast<std::int64_t>(std::max<std::size_t>(all / shards.size(), 1));
    };
    const auto kept = call(*shared_, [&](Pipeline& pipeline) {
      const auto ask = [&](const std::string& sql, std::int64_t some) {
        add_int8_array(pipeline.arguments(), shards.size(),
                       [&](std::size_t i) { return std::optional<std::int64_t>(shards[i]); });
        pipeline.arguments().add_int(some);
        pipeline.arguments().add_int(part_of(bytes));
        pipeline.add(sql, kCaller, Pipeline::Keep::binary);
      };
      ask(sql().waiting, part_of(most));
      ask(sql().retries_to_send, static_cast<std::int64_t>(most));
    });
    std::vector<ports::OutboxRecord> records;
    for (int row = 0; row < PQntuples(kept[0].get()); ++row) records.push_back(record_in(kept[0].get(), row));
    for (int row = 0; row < PQntuples(kept[1].get()); ++row) records.push_back(retry_in(kept[1].get(), row));
    return records;
  }

  ports::OutboxDue release_due(std::span<const ports::OutboxShard> shards, std::size_t most) override {
    const auto kept = call(*shared_, [&](Pipeline& pipeline) {
      for (const std::string* statement : {&sql().release_due, &sql().look_for_due_retries}) {
        add_int8_array(pipeline.arguments(), shards.size(),
                       [&](std::size_t i) { return std::optional<std::int64_t>(shards[i]); });
        pipeline.arguments().add_int(static_cast<std::int64_t>(most));
        pipeline.add(*statement, kCaller, Pipeline::Keep::binary);
      }
    });
    ports::OutboxDue due;
    for (const auto& result : kept) {
      const PGresult* row = result.get();
      due.moved += static_cast<std::size_t>(int64_in(row, 0, 0));
      if (PQgetisnull(row, 0, 1)) continue;
      const std::chrono::milliseconds next(int64_in(row, 0, 1));
      due.next = due.next ? std::min(*due.next, next) : next;
    }
    return due;
  }

  void remove(std::span<const ports::OutboxRecord* const> records) override {
    std::vector<const ports::OutboxRecord*> published, stored;
    for (const auto* record : records) (record->due_us ? stored : published).push_back(record);
    call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      // Records that a crash of the server restores are sent again, with the same id.
      pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
      ArgumentBlock& to = pipeline.arguments();
      const auto add_numbers = [&](const std::vector<const ports::OutboxRecord*>& of, auto number_of) {
        add_int8_array(to, of.size(), [&](std::size_t i) { return std::optional<std::int64_t>(number_of(*of[i])); });
      };
      const auto id_of = [](const ports::OutboxRecord& record) { return record.id; };
      if (!published.empty()) {
        add_numbers(published, [](const ports::OutboxRecord& record) { return record.shard; });
        add_numbers(published, id_of);
        pipeline.add(sql().remove_sent, kCaller);
      }
      if (!stored.empty()) {
        add_numbers(stored, id_of);
        add_numbers(stored, [](const ports::OutboxRecord& record) { return *record.due_us; });
        pipeline.add(sql().retries_are_sent, kCaller);
      }
    });
  }

  std::optional<std::int64_t> refuse(const ports::OutboxRecord& record, const std::string& why) override {
    const auto kept = call(*shared_, [&](Pipeline& pipeline) {
      ArgumentBlock& to = pipeline.arguments();
      to.add_int(record.due_us ? record.id : record.shard);
      to.add_int(record.due_us ? *record.due_us : record.id);
      to.add_text(printable(why));
      pipeline.add(record.due_us ? sql().refuse_retry : sql().refuse, kCaller, Pipeline::Keep::binary);
    });
    const PGresult* rows = kept[0].get();
    return PQntuples(rows) == 0 ? std::nullopt : std::optional(int64_in(rows, 0, 0));
  }

  ports::OutboxLag lag() override {
    const auto kept =
        call(*shared_, [&](Pipeline& pipeline) { pipeline.add(sql().lag, kCaller, Pipeline::Keep::binary); });
    const PGresult* row = kept[0].get();
    return {int64_in(row, 0, 0), std::chrono::milliseconds(int64_in(row, 0, 1)), int64_in(row, 0, 2),
            int64_in(row, 0, 3), int64_in(row, 0, 4)};
  }

 private:
  [[nodiscard]] const Statements& sql() const { return shared_->statements; }

  const std::shared_ptr<Shared> shared_;
};

}  // namespace

/// FNV-1a.
ports::OutboxShard shard_of(std::string_view key) {
  std::uint32_t hash = 2'166'136'261U;
  for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 16'777'619U;
  return static_cast<ports::OutboxShard>((hash ^ hash >> 16) % static_cast<std::uint32_t>(ports::kOutboxShards));
}

ports::OutboxShard outbox_shard(const OwnedMessage& message, const MessageId& id) {
  // If the table refused it, all messages of its transaction would count as refused by the store.
  if (message.topic.empty() || printable(message.topic) != message.topic)
    throw Error(Code::api_misused, "publish(): \"" + printable(message.topic) +
                                       "\" is not a valid topic name, so the message was not published");
  return message.key ? shard_of(*message.key) : static_cast<ports::OutboxShard>(id.bytes.back() % ports::kOutboxShards);
}

bool is_scheduled_now(const OwnedMessage& message) {
  return ports::is_scheduled(message, std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()));
}

std::shared_ptr<ports::Outbox> open_outbox(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresOutbox>(std::move(shared));
}

}  // namespace turnstile::postgres
