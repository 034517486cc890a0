#include <algorithm>

#include "inbox_state.hpp"

namespace turnstile::testing {

namespace {

ports::OutboxShard shard_of(const OwnedMessage& message, const MessageId& id) {
  const std::size_t hash = message.key ? std::hash<std::string>{}(*message.key) : id.bytes.back();
  return static_cast<ports::OutboxShard>(hash % ports::kOutboxShards);
}

std::size_t bytes_of(const OwnedMessage& message) {
  std::size_t bytes = message.key.value_or("").size() + message.payload.value_or("").size();
  for (const Header& header : message.headers) bytes += header.name.size() + header.value.value_or("").size();
  return bytes;
}

class MemoryOutbox final : public ports::Outbox {
 public:
  explicit MemoryOutbox(std::shared_ptr<MemoryInbox::State> state) : state_(std::move(state)) {}

  std::vector<ports::OutboxShard> keep_shards(const std::string& owner, std::chrono::milliseconds lease) override {
    const auto lock = enter();
    const auto now = std::chrono::steady_clock::now();
    std::vector<ports::OutboxShard> shards;
    for (ports::OutboxShard shard = 0; shard < ports::kOutboxShards; ++shard) {
      auto& [has, until] = state_->relays[shard];
      if (!has.empty() && has != owner && until >= now) continue;
      has = owner;
      until = now + lease;
      shards.push_back(shard);
    }
    return shards;
  }

  void leave_shards(const std::string& owner) override {
    const auto lock = enter();
    for (auto& [shard, relay] : state_->relays) {
      if (relay.first == owner) relay.first.clear();
    }
  }

  std::vector<ports::OutboxRecord> waiting(std::span<const ports::OutboxShard> shards, std::size_t most,
                                           std::size_t bytes) override {
    const auto lock = enter();
    std::vector<ports::OutboxRecord> records;
    std::map<ports::OutboxShard, std::size_t> before;
    for (const OutboxRow& row : state_->outbox) {
      if (records.size() == most) break;
      if (std::find(shards.begin(), shards.end(), row.record.shard) == shards.end()) continue;
      std::size_t& used = before[row.record.shard];
      if (used > 0 && used >= bytes / shards.size()) continue;
      used += bytes_of(row.record.message);
      records.push_back(row.record);
    }
    return records;
  }

  ports::OutboxDue release_due(std::span<const ports::OutboxShard> shards, std::size_t most) override {
    const auto lock = enter();
    ports::OutboxDue due;
    const Timestamp time = now();
    auto& scheduled = state_->scheduled;
    for (auto at = scheduled.begin(); at != scheduled.end() && at->first <= time && due.moved < most;) {
      if (std::find(shards.begin(), shards.end(), at->second.shard) == shards.end()) {
        ++at;
        continue;
      }
      state_->put_out(std::move(at->second));
      at = scheduled.erase(at);
      ++due.moved;
    }
    due.moved += state_->release_retries(shards, most);
    std::optional<Timestamp> next = state_->next_retry();
    if (!scheduled.empty()) next = std::min(scheduled.begin()->first, next.value_or(Timestamp::max()));
    if (next) due.next = std::max(*next - time, std::chrono::milliseconds(0));
    return due;
  }

  void remove(std::span<const ports::OutboxRecord* const> records) override {
    const auto lock = enter();
    for (const ports::OutboxRecord* gone : records)
      std::erase_if(state_->outbox, [&](const OutboxRow& row) { return row.record.id == gone->id; });
  }

  std::optional<std::int64_t> refuse(const ports::OutboxRecord& refused, const std::string& why) override {
    const auto lock = enter();
    const auto erased =
        std::erase_if(state_->outbox, [&](const OutboxRow& row) { return row.record.id == refused.id; });
    if (erased == 0) return std::nullopt;
    state_->refused.emplace_back(refused, why);
    return refused.id;
  }

  ports::OutboxLag lag() override {
    const auto lock = enter();
    ports::OutboxLag lag{
        .waiting = static_cast<std::int64_t>(state_->outbox.size()),
        .refused = static_cast<std::int64_t>(state_->refused.size()),
        .scheduled = static_cast<std::int64_t>(state_->scheduled.size()),
        .retries = std::min(static_cast<std::int64_t>(state_->retries.size()), ports::kMostRetriesCounted)};
    for (const OutboxRow& row : state_->outbox) {
      const auto age = std::chrono::steady_clock::now() - row.written_at;
      lag.oldest = std::max(lag.oldest, std::chrono::duration_cast<std::chrono::milliseconds>(age));
    }
    return lag;
  }

 private:
  [[nodiscard]] std::unique_lock<std::mutex> enter() const {
    std::unique_lock lock(state_->mutex);
    state_->require_available();
    return lock;
  }

  const std::shared_ptr<MemoryInbox::State> state_;
};

}  // namespace

ports::OutboxRecord outbox_record(const OwnedMessage& message, const MessageId& id) {
  ports::OutboxRecord record{.shard = shard_of(message, id), .message = message};
  record.message.partition = -1;
  (void)ports::is_scheduled(message, now());  // refuses a time that is too late
  ports::put_id(record.message, id);
  return record;
}

void MemoryInbox::State::put_out(ports::OutboxRecord record) {
  if (ports::is_scheduled(record.message, now())) {
    scheduled.emplace(*record.message.not_before, std::move(record));
    return;
  }
  record.id = ++outbox_ids;
  outbox.push_back({std::move(record), std::chrono::steady_clock::now()});
}

std::shared_ptr<ports::Outbox> MemoryInbox::outbox() { return std::make_shared<MemoryOutbox>(state_); }

}  // namespace turnstile::testing
