#pragma once
// Producers that number their requests (mode numbered): their sessions, and how far each of
// them is. adapters/postgres and adapters/memory implement it; both pass the same contract suite.
//
// A request carries the id of its session, its number (from 1, growing), and the highest number that its producer will
// never resend. The store keeps one bit of it, and its response while the producer may ask for it. There is one row for
// each handler, partition and producer.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::ports {

/// The producer and the number of a request.
struct Request {
  MessageId producer;       ///< the producer's session
  std::int64_t number = 0;  ///< from 1
  /// The producer needs no response up to this number, and will not resend these requests.
  std::int64_t acked = 0;
  Timestamp sent{};       ///< by the record's timestamp
  bool replayed = false;  ///< as a dead letter: it may not have run, although its producer acknowledged it
};

/// What a producer requests when it opens a session.
struct ProducerTerms {
  std::string name;  ///< for people; in the table `producer`
  /// A session without a heartbeat for this time is marked as expired, and requests sent later do not run. The default
  /// is from "Patterns of Distributed Systems" (Idempotent Receiver).
  std::chrono::milliseconds expiry{300'000};
  /// After the expiry, earlier requests are still distinguished for this time. Then the session is deleted. It must
  /// exceed the topic's retention and the lag of its consumers.
  std::chrono::seconds keep_for{8 * 24 * 3600};
  /// Absent: the store makes an id. A known id continues its session.
  std::optional<MessageId> id{};
};

/// A producer's session.
struct ProducerSession {
  MessageId id;        ///< its id
  std::string secret;  ///< the key that signs its requests; 32 bytes
};

/// The sessions of producers. Thread-safe. Every call may throw StoreUnavailable.
class Producers {
 public:
  virtual ~Producers() = default;
  /// Opens a session, or continues the session that `terms` name.
  virtual ProducerSession open(const ProducerTerms& terms) = 0;
  /// False: the session was marked as expired, or is unknown. This does not change; open another session.
  virtual bool heartbeat(const MessageId& id) = 0;
  /// The secrets of the known sessions, expired or not, in the order of `ids`.
  virtual std::vector<std::optional<std::string>> secrets(std::span<const MessageId> ids) = 0;
  /// Marks sessions without a heartbeat as expired, drops their responses, and deletes sessions whose time is over.
  /// Returns how many it marked.
  virtual std::int64_t expire() = 0;
};

}  // namespace turnstile::ports
