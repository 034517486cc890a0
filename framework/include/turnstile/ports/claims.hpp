#pragma once
// Claims: which process runs which message, for effects that a transaction cannot contain. adapters/postgres and
// adapters/memory implement them; both pass the same contract suite.
//
//   claim() -> begin() -> the handler runs -> end(): done, failed, or given back
//
// A claim has an owner, a lease by the store's clock, and a fence that counts the claims of its message. Every change
// of a claim first compares owner, fence and state, so a process that has lost its claim changes nothing. A message
// that is done is an id in the inbox, as in the other modes.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::ports {

struct InboxEntry;

/// The common part of all claims of one call.
struct ClaimScope {
  HandlerId handler;             ///< the scope of the ids
  std::optional<Fence> fence{};  ///< absent: no partition belongs to the claims
  MessageId owner;               ///< a new id for each call
  /// Owners of earlier calls of this process that threw, so that nothing ran under them. This call takes over what they
  /// may have claimed.
  std::vector<MessageId> abandoned{};
  /// How long a claim is valid without renewal.
  std::chrono::milliseconds lease{30'000};
  /// Whether a message runs again if its lease ended without a result, so that it may have taken effect.
  bool rerun_unknown = false;
  /// True: the handlers start as soon as their messages are claimed. False: a handler starts only after begin() was
  /// called for its message.
  bool begins = true;
  std::chrono::milliseconds lock_timeout{5'000};  ///< longest wait for a concurrent transaction
};

/// The result of claim() for a message.
struct Claim {
  /// The kinds of result.
  enum class State : std::uint8_t {
    claimed,   ///< this call claimed it: run it
    done,      ///< it has taken effect
    mismatch,  ///< the same id is done, or claimed, with another body
    running,   ///< another owner has it, and its lease has not ended
    parked,    ///< it may have taken effect, and an operator must decide (`turnstile inbox unpark`)
    repeated,  ///< an earlier entry of the same call has this id
  };
  State state = State::running;       ///< the kind of result
  std::int64_t fence = 0;             ///< claimed: the number of claims of the message, from 1
  std::chrono::milliseconds left{0};  ///< running: time until its lease ends
  /// Running: true if it was claimed for another record with this id. False if it was claimed for this record, or if
  /// that is unknown.
  bool is_copy = false;
};

/// A claim that this owner holds.
struct HeldClaim {
  MessageId id;            ///< of the message
  std::int64_t fence = 0;  ///< the number of claims of the message
};

/// The end of a claim.
struct ClaimEnd {
  /// How the run of the message ended.
  enum class Kind : std::uint8_t {
    done,        ///< it took effect
    failed,      ///< its handler failed; the next owner may run it again
    given_back,  ///< it was not run
  };
  Kind kind = Kind::done;                                      ///< how the run ended
  HeldClaim claim;                                             ///< the claim that ends
  std::optional<std::string> response{};                       ///< done: the response that is stored for duplicates
  std::vector<std::pair<OwnedMessage, MessageId>> messages{};  ///< done: for the outbox, each with its id
  std::string error{};                                         ///< failed: why
};

/// How many claims of a database are in which state. A claim that was given back, or whose message is done, is gone.
struct ClaimCounts {
  std::int64_t running = 0;   ///< their lease has not ended, or it ended before their handler began
  std::int64_t in_doubt = 0;  ///< their lease ended without a result: the next delivery decides by `unknown`
  std::int64_t failed = 0;    ///< their handler failed: they wait for their next attempt
  std::int64_t parked = 0;    ///< an operator must decide
  bool operator==(const ClaimCounts&) const = default;  ///< compares all
};

/// Each call is a transaction of its own. Thread-safe. Every call may throw StoreBusy (nothing was done) and
/// StoreUnavailable (it may have been done). In both cases the call may be repeated.
class Claims {
 public:
  virtual ~Claims() = default;
  /// Claims messages. The results have the order of `entries`. Throws Fenced.
  virtual std::vector<Claim> claim(const ClaimScope& scope, std::span<const InboxEntry> entries) = 0;
  /// The handlers of these messages are about to start. Only from here on a lease that ends without a result puts its
  /// message in doubt. Before, the next owner takes such a claim over, under each policy. Returns which claims the
  /// owner still held.
  virtual std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const HeldClaim> held) = 0;
  /// Ends claims. Returns which claims the owner still held; the others changed nothing.
  virtual std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ClaimEnd> ends) = 0;
  /// Starts the leases anew. Returns which claims the owner still held.
  virtual std::vector<bool> renew(HandlerId handler, const MessageId& owner, std::chrono::milliseconds lease,
                                  std::span<const HeldClaim> held) = 0;
  /// How many claims of the handler are in which state. Absent: of all handlers. It reads all claims, so call it a few
  /// times a minute at most, and after a claim of partitions.
  virtual ClaimCounts count(std::optional<HandlerId> handler) = 0;
};

}  // namespace turnstile::ports
