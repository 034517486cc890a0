// Batches of numbered messages, and their producers.

#include <algorithm>

#include "inbox_state.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ids.hpp"

namespace turnstile::testing {

Timestamp now() { return std::chrono::time_point_cast<Timestamp::duration>(std::chrono::system_clock::now()); }

std::vector<ports::Admission> MemorySession::admit_numbered(std::span<const ports::InboxEntry> entries, Lock& lock) {
  if (!scope_.fence)
    throw Error(Code::api_misused,
                "numbered messages belong to a partition, so the scope needs the fence of that partition");
  const Offset next = lock_progress(entries.back().offset + 1, lock);
  if (scope_.mode == Mode::numbered) add_producers(entries);
  std::vector<ports::Admission> admissions;
  for (const ports::InboxEntry& entry : entries) {
    const bool done = entry.offset < next;
    if (scope_.mode == Mode::numbered) requests_.emplace(entry.id, entry.request.value());
    if (done) admissions.push_back(ports::Admission::duplicate);
    else admissions.push_back(entry.request ? book_.admit(*entry.request) : ports::Admission::fresh);
  }
  return admissions;
}

/// The progress of the partition. The commit moves it to `next`.
Offset MemorySession::lock_progress(Offset next, Lock& lock) {
  Progress& row = state_->progress[{scope_.handler, scope_.fence->slot}];
  if (!state_->changed.wait_for(lock, scope_.lock_timeout, [&] { return !row.locked; }))
    throw StoreBusy("an open transaction holds the same partition (SQLSTATE 55P03)");
  check_still_there(lock);
  row.locked = true;
  moves_to_ = next;
  return row.incarnation == scope_.incarnation ? row.next : 0;
}

void MemorySession::add_producers(std::span<const ports::InboxEntry> entries) {
  for (const ports::InboxEntry& entry : entries) {
    const MessageId& producer = entry.request.value().producer;
    const auto row = state_->producers.find(producer);
    if (row == state_->producers.end() || book_.rows().contains(producer)) continue;
    const auto window = state_->windows.find(window_of(producer));
    book_.add(producer, {row->second.expired, window == state_->windows.end()
                                                  ? RequestWindow(scope_.window)
                                                  : RequestWindow(scope_.window, window->second.kept())});
  }
}

void MemorySession::end_numbered(bool commit) {
  Progress& row = state_->progress.at({scope_.handler, scope_.fence->slot});
  row.locked = false;
  if (!commit) return;
  row = {scope_.incarnation, row.incarnation == scope_.incarnation ? std::max(row.next, *moves_to_) : *moves_to_};
  keep_windows();
}

void MemorySession::keep_windows() {
  auto& responses = state_->request_responses;
  for (const auto& [producer, row] : book_.rows()) {
    const WindowKey key = window_of(producer);
    if (!row.changed) continue;
    state_->windows.insert_or_assign(key, row.window);
    responses.erase(responses.lower_bound({key, 0}), responses.upper_bound({key, row.window.forgotten()}));
  }
  for (auto& [key, body] : responses_) {
    const auto request = requests_.find(key.second);
    if (request == requests_.end()) continue;
    responses.insert_or_assign({window_of(request->second.producer), request->second.number}, std::move(body));
  }
  if (!requests_.empty()) responses_.clear();
}

namespace {

class MemoryProducers final : public ports::Producers {
 public:
  explicit MemoryProducers(std::shared_ptr<MemoryInbox::State> state) : state_(std::move(state)) {}

  ports::ProducerSession open(const ports::ProducerTerms& terms) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const MessageId id = terms.id.value_or(new_message_id());
    ProducerRow& row = state_->producers[id];
    if (row.secret.empty()) {
      row.terms = terms;
      row.secret = new_message_id().text();
    }
    row.heartbeat = now();
    row.expired.reset();
    return {id, row.secret};
  }

  bool heartbeat(const MessageId& id) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const auto row = state_->producers.find(id);
    if (row == state_->producers.end() || row->second.expired) return false;
    row->second.heartbeat = now();
    return true;
  }

  std::vector<std::optional<std::string>> secrets(std::span<const MessageId> ids) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::vector<std::optional<std::string>> secrets;
    for (const MessageId& id : ids) {
      const auto row = state_->producers.find(id);
      secrets.push_back(row == state_->producers.end() ? std::nullopt : std::optional(row->second.secret));
    }
    return secrets;
  }

  std::int64_t expire() override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::int64_t marked = 0;
    for (auto& [id, row] : state_->producers) {
      if (row.expired || row.heartbeat + row.terms.expiry >= now()) continue;
      row.expired = now();
      ++marked;
      std::erase_if(state_->request_responses,
                    [&producer = id](const auto& kept) { return kept.first.first.producer == producer; });
    }
    std::erase_if(state_->producers, [&](const auto& producer) {
      const ProducerRow& row = producer.second;
      if (!row.expired || *row.expired + row.terms.keep_for >= now()) return false;
      std::erase_if(state_->windows, [&](const auto& window) { return window.first.producer == producer.first; });
      return true;
    });
    return marked;
  }

 private:
  std::shared_ptr<MemoryInbox::State> state_;
};

}  // namespace

std::shared_ptr<ports::Producers> MemoryInbox::producers() { return std::make_shared<MemoryProducers>(state_); }

void MemoryInbox::age_producers(std::chrono::milliseconds by) {
  const std::lock_guard lock(state_->mutex);
  for (auto& [id, row] : state_->producers) {
    row.heartbeat -= by;
    if (row.expired) *row.expired -= by;
  }
}

}  // namespace turnstile::testing
