#pragma once
// Producers that number their requests (mode sequence, message_id = "request"): a session for each, and how far each has come. Implemented
// by adapters/postgres and adapters/memory; both pass the same contract suite.
//
// A request bears the id of its session, its number (from 1, growing), and the number up to which its producer will send nothing again.
// What is kept of it is one bit, and its response while it may be asked for: for each handler, partition and producer one row.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Which request of which producer a message is.
struct Request {
  MessageId producer;       ///< the producer's session
  std::int64_t number = 0;  ///< from 1
  std::int64_t acked =
      0;             ///< its producer needs no response of this one and of those before it; they are not sent again
  Timestamp sent{};  ///< by the record's timestamp
  bool replayed = false;  ///< as a dead letter: it may not have run although its producer is done with it
};

/// What a producer asks for when it opens a session.
struct ProducerTerms {
  std::string name;  ///< for people: in the table `producer`
  /// A session without a heartbeat for so long is marked as expired: what is sent later is not run. The default is that of "Patterns of
  /// Distributed Systems" (Idempotent Receiver).
  std::chrono::milliseconds expiry{300'000};
  /// For so long after that, what was sent before is still told apart; then the session is forgotten. Longer than a topic keeps its
  /// records, and than its consumers may lag.
  std::chrono::seconds keep_for{8 * 24 * 3600};
  /// Absent: the store makes one. One that is known already goes on.
  std::optional<MessageId> id{};
};

/// A producer's session.
struct ProducerSession {
  MessageId id;        ///< what names it
  std::string secret;  ///< what its requests are signed with; 32 bytes
};

/// Thread-safe. Every call may throw StoreUnavailable.
class Producers {
 public:
  virtual ~Producers() = default;
  /// Opens a session, or goes on with the one that `terms` name.
  virtual ProducerSession open(const ProducerTerms& terms) = 0;
  /// False: it was marked as expired, or is not known. It stays so; open another.
  virtual bool heartbeat(const MessageId& id) = 0;
  /// The secrets of those sessions that are known, expired or not, in the order asked.
  virtual std::vector<std::optional<std::string>> secrets(std::span<const MessageId> ids) = 0;
  /// Marks those whose heartbeat is over, drops their responses, and forgets those whose time is over. Returns how many it marked.
  virtual std::int64_t expire() = 0;
};

}  // namespace turnstile
