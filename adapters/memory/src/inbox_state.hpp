#pragma once
// The common state of the sessions of a MemoryInbox.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "turnstile/requests.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::testing {

using InboxKey = std::pair<HandlerId, MessageId>;

struct FenceRow {
  std::string group;
  TopicPartition at;
  std::int64_t epoch = 0;
  std::int32_t incarnation = 0;
  std::optional<Offset> watermark;
  std::int64_t released_epoch = 0;  ///< the last epoch that its owner has released
  int sharers = 0;                  ///< open transactions that hold it
};

struct ClaimRow {
  enum class State : std::uint8_t { claimed, failed, parked };
  State state = State::claimed;
  MessageId owner;
  std::int64_t fence = 1;
  std::chrono::steady_clock::time_point expires;
  std::pair<std::int32_t, Offset> where;  ///< slot and offset
  std::optional<std::int64_t> fingerprint;
  bool begun = true;
};

/// A message in the outbox, and the time of its commit.
struct OutboxRow {
  ports::OutboxRecord record;
  std::chrono::steady_clock::time_point written_at;
};

/// Messages of a partition that began together.
struct TrialRow {
  std::int64_t epoch = 0;
  std::int32_t incarnation = 0;
  std::vector<Offset> offsets;
  bool alone = false;
};

/// A trial whose owner gave the partition up while it ran.
struct OutlastingRow {
  TrialRow trial;
  std::chrono::steady_clock::time_point ends_by;
};

struct SuspectRow {
  std::int32_t incarnation = 0;
  int deaths = 0;
  std::int64_t epoch = 0;  ///< of the owner whose death counted last
};

/// A message that waits for its next attempt.
struct RetryRow {
  HandlerId handler;
  MessageId id;
  int attempts = 0;
  std::optional<Timestamp> due;  ///< absent: an earlier message of its key has a row
  bool sent = false;
  bool in_order = false;
  OwnedMessage record;
  std::string error;
};

using ProgressKey = std::pair<HandlerId, std::int32_t>;  ///< handler, slot
struct Progress {
  std::int32_t incarnation = 0;
  Offset next = 0;
  bool locked = false;  ///< by an open transaction
};

struct ProducerRow {
  ports::ProducerTerms terms;
  std::string secret;
  Timestamp heartbeat;
  std::optional<Timestamp> expired;
};

/// The window of a producer, for a handler and a partition.
struct WindowKey {
  MessageId producer;
  HandlerId handler;
  std::int32_t slot = 0;
  auto operator<=>(const WindowKey&) const = default;
};

inline std::string next_name() {
  static std::atomic<int> last{0};
  return "memory/" + std::to_string(++last);
}

/// The tables of a database, which a replica also has.
struct MemoryInbox::Tables {
  std::string name = next_name();                       ///< unique, except for its replicas
  std::map<InboxKey, std::optional<std::int64_t>> ids;  ///< with fingerprints
  std::map<InboxKey, ClaimRow> claims;
  std::map<std::pair<std::int32_t, Offset>, TrialRow> trials;      ///< by slot and first offset
  std::map<std::pair<std::int32_t, Offset>, SuspectRow> suspects;  ///< by slot and offset
  std::multimap<std::int32_t, OutlastingRow> outlasting;           ///< by slot
  std::map<ports::PausedPart, ports::Pause> pauses;
  std::map<ProgressKey, Progress> progress;
  std::map<MessageId, ProducerRow> producers;
  std::map<WindowKey, RequestWindow> windows;
  std::map<std::pair<WindowKey, std::int64_t>, std::string> request_responses;
  std::map<std::int32_t, FenceRow> fences;
  std::map<std::string, HandlerId> handlers;
  std::map<HandlerId, std::string> first_groups;
  std::map<HandlerId, std::optional<std::chrono::seconds>> kept;  ///< the longest declared duration
  std::map<std::tuple<HandlerId, std::int32_t, std::int32_t, Offset>, ports::DeadMessage> dead;
  std::map<InboxKey, std::string> responses;
  std::vector<OutboxRow> outbox;                            ///< in the order of commits
  std::multimap<Timestamp, ports::OutboxRecord> scheduled;  ///< by the time when they are due
  std::map<std::int64_t, RetryRow> retries;                 ///< by number
  std::int64_t retry_numbers = 0;
  std::vector<std::pair<ports::OutboxRecord, std::string>> refused;
  std::int64_t outbox_ids = 0;
  std::map<ports::OutboxShard, std::pair<std::string, std::chrono::steady_clock::time_point>> relays;
  std::vector<Statement> committed;
};

struct MemoryInbox::State : Tables {
  mutable std::mutex mutex;
  std::condition_variable changed;  ///< a transaction ended

  std::set<InboxKey> pending;  ///< of open transactions
  std::int64_t history = 1;    ///< see Fence::history
  std::size_t commits = 0;
  std::size_t rollbacks = 0;

  bool unavailable = false;
  std::uint64_t outages = 0;  ///< a transaction is lost if it was open when an outage began
  std::string schema_problem;
  std::deque<CommitFault> commit_faults;
  std::deque<std::exception_ptr> begin_faults;
  std::map<std::string, Rows> answers;
  std::map<std::string, std::string> failures;
  std::function<std::optional<Rows>(const Statement&)> hook;

  /// Throws StoreUnavailable during an outage. Call it with the mutex held.
  void require_available() const;
  /// Adds a committed message to the outbox. Call it with the mutex held.
  void put_out(ports::OutboxRecord record);
  // Stored retries (inbox_retries.cpp). Call them with the mutex held.
  RetryRow* find_retry(HandlerId handler, const ports::RetryRef& ref);
  /// Whether a message of the key is stored, with a number below this one, that is not in `except`.
  bool is_key_stored(HandlerId handler, std::string_view key,
                     std::int64_t below = std::numeric_limits<std::int64_t>::max(),
                     const std::set<std::int64_t>& except = {}) const;
  /// The rows of `settled` end in the same transaction.
  void add_retry(HandlerId handler, const ports::DeferredRetry& retry, const std::vector<ports::RetryRef>& settled);
  void end_retry(HandlerId handler, const ports::RetryRef& ref);
  /// The number of moved records.
  std::size_t release_retries(std::span<const ports::OutboxShard> shards, std::size_t most);
  std::optional<Timestamp> next_retry() const;
  /// The fence's row, if its epoch and its history are current; otherwise null. Call it with the mutex held.
  FenceRow* find_owned(const Fence& fence);
  /// As find_owned(), but throws Fenced. Call it with the mutex held.
  FenceRow& owned(const Fence& fence);
};

/// By the clock of the records' timestamps.
Timestamp now();

/// The outbox's form of a message that is published under this id.
ports::OutboxRecord outbox_record(const OwnedMessage& message, const MessageId& id);

/// Runs one transaction at a time on a shared state.
class MemorySession final : public ports::InboxSession, public Transaction {
 public:
  explicit MemorySession(std::shared_ptr<MemoryInbox::State> state) : state_(std::move(state)) {}
  ~MemorySession() override { rollback(); }

  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override;
  std::vector<ports::Admission> begin_shared(const ports::InboxScope& scope,
                                             std::span<const ports::InboxShare> shares) override;
  Transaction& transaction() override { return *this; }
  void at_message(std::size_t index) override;
  bool undo_message() noexcept override;
  void respond(const MessageId& id, std::string_view body) override;
  void publish(const OwnedMessage& message, const MessageId& id) override;
  std::vector<ports::RetryTurn> retry_turns(std::span<const ports::RetryQuestion> questions) override;
  void write_retries(const ports::RetryChanges& changes) override;
  void commit() override;
  void rollback() noexcept override;
  ports::Standing standing() noexcept override;
  /// Admits more ids in the open transaction.
  std::vector<ports::Admission> admit(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries);
  void respond(HandlerId handler, const MessageId& id, std::string_view body);
  std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                            std::span<const MessageId> ids) override;
  std::vector<std::optional<std::string>> responses(HandlerId handler, std::span<const MessageId> ids) override;
  Rows run(std::string_view sql, std::span<const Param> params) override;
  void queue(std::string_view sql, std::span<const Param> params) override;

 private:
  using Lock = std::unique_lock<std::mutex>;
  std::vector<ports::Admission> open(const ports::InboxScope& scope, std::span<const Fence> fences,
                                     std::span<const ports::InboxEntry> entries);
  std::vector<ports::Admission> admit(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries,
                                      Lock& lock);
  void acquire(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries, Lock& lock);
  // For numbered messages (inbox_numbered.cpp).
  std::vector<ports::Admission> admit_numbered(std::span<const ports::InboxEntry> entries, Lock& lock);
  Offset lock_progress(Offset next, Lock& lock);
  ports::Admission admit_request(const ports::InboxEntry& entry);
  void add_producers(std::span<const ports::InboxEntry> entries);
  void end_numbered(bool commit);
  void keep_windows();
  [[nodiscard]] std::optional<std::string> kept_response(const InboxKey& key) const;
  [[nodiscard]] WindowKey window_of(const MessageId& producer) const {
    return {producer, scope_.handler, scope_.fence->slot};
  }
  void end(bool commit) noexcept;
  void end_in_state(bool commit);
  [[nodiscard]] std::map<InboxKey, std::optional<std::int64_t>> kept_ids() const;
  void require_open();
  void check_still_there(Lock& lock);
  void flush();
  Rows execute(const Statement& statement);
  [[noreturn]] void throw_spoiled();

  std::shared_ptr<MemoryInbox::State> state_;
  bool open_ = false;
  bool lost_ = false;
  std::uint64_t outage_ = 0;
  std::int64_t history_ = 0;
  ports::InboxScope scope_{};
  std::vector<std::int32_t> slots_;  ///< of the fences that the transaction holds
  std::map<InboxKey, std::optional<std::int64_t>> mine_;
  std::optional<Offset> moves_to_;  ///< the partition's progress after the commit
  RequestWindows book_;
  std::map<MessageId, ports::Request> requests_;  ///< of the batch, if producers number them
  std::map<InboxKey, std::string> responses_;
  std::vector<ports::OutboxRecord> published_;
  ports::RetryChanges retries_;
  std::vector<Statement> done_;
  std::vector<Statement> deferred_;
  std::size_t message_ = 0;
  /// How much there was when the message began.
  struct Mark {
    std::size_t executed = 0, deferred = 0, published = 0;
    std::map<InboxKey, std::string> responses{};
  };
  Mark message_mark_;
  std::size_t executed_ = 0;
  std::exception_ptr failure_;  ///< a statement failed: the transaction can only be rolled back
  bool failure_is_deferred_ = false;
};

}  // namespace turnstile::testing
