#pragma once
// The database of a service, as a whole. Each port of it has one job and a header of its own. adapters/postgres and
// adapters/memory implement it; both pass the same contract suite.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "turnstile/ports/claims.hpp"
#include "turnstile/ports/dead_letters.hpp"
#include "turnstile/ports/inbox.hpp"
#include "turnstile/ports/outbox.hpp"
#include "turnstile/ports/partitions.hpp"
#include "turnstile/ports/pauses.hpp"
#include "turnstile/ports/producers.hpp"
#include "turnstile/ports/retention.hpp"
#include "turnstile/ports/trials.hpp"
#include "turnstile/types.hpp"

namespace turnstile::ports {

/// Opens sessions, and gives access to the other ports of the same database. Thread-safe. Every call may throw
/// StoreUnavailable.
class Store {
 public:
  virtual ~Store() = default;
  /// A session for one worker, with one transaction at a time.
  virtual std::unique_ptr<InboxSession> open_session() = 0;
  /// A session within the caller's open transaction, which must outlive it. begin() admits ids, and waits for
  /// concurrent transactions as that transaction would. commit() and rollback() do nothing. After SqlError or StoreBusy
  /// the transaction has failed. Throws Error for a transaction of another store.
  virtual std::unique_ptr<InboxSession> join(Transaction& transaction) = 0;
  /// While true, calls that wait for the store's answer end, and no new call begins. Both throw StoreUnavailable, and a
  /// commit throws CommitInDoubt. For the shutdown of a process whose store hangs. Any thread may call it.
  virtual void cut(bool /*now*/) noexcept {}
  /// The stored data of an id. Absent if the id has not taken effect, or if its transaction has not committed yet.
  virtual std::optional<Recorded> find(HandlerId handler, const MessageId& id) = 0;
  /// The claims, for effects outside of transactions. The object lives as long as a reference to it.
  virtual std::shared_ptr<Claims> claims() = 0;
  /// The producers that number requests. The object lives as long as a reference to it.
  virtual std::shared_ptr<Producers> producers() = 0;
  /// The outbox, where publish() puts messages. The object lives as long as a reference to it.
  virtual std::shared_ptr<Outbox> outbox() = 0;
  /// The record of the messages that ran when a process died. The object lives as long as a reference to it.
  virtual std::shared_ptr<Trials> trials() = 0;
  /// Which topics, partitions and keys are paused. The object lives as long as a reference to it.
  virtual std::shared_ptr<Pauses> pauses() = 0;
  /// The partitions that consumers own. It lives as long as the store.
  virtual Partitions& partitions() noexcept = 0;
  /// The table of dead letters. It lives as long as the store.
  virtual DeadLetterStore& dead_letters() noexcept = 0;
  /// How long ids are kept. It lives as long as the store.
  virtual Retention& retention() noexcept = 0;
  /// Throws SchemaError, with the command to run, if the schema is missing, changed, or of another version than this
  /// build.
  virtual void check_schema() = 0;
  /// Returns the same id for the same name, forever. Throws Error if all ids are used (32,767).
  virtual HandlerId register_handler(const std::string& name) = 0;
  /// For a handler without a name of its own, which is named after its topic: the first group that used this name. If
  /// it is not `group`, two services would treat each other's ids as their own.
  virtual std::string first_group(HandlerId handler, const std::string& group) = 0;
  /// The current history of the database (Fence::history). It refuses fences of another history.
  virtual std::int64_t history() = 0;
};

}  // namespace turnstile::ports
