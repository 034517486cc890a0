#pragma once
// Claims: who is at work on which message, for effects that no transaction can hold. Implemented by adapters/postgres and
// adapters/memory; both pass the same contract suite.
//
//   claim() -> begin() -> the handler runs -> end(): done, failed, or given back
//
// A claim has an owner, a lease by the store's clock, and a fence that counts the claims of its message. All that changes a claim
// compares owner, fence and state first: who has lost it changes nothing. What is done is an id in the inbox like any other.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

struct InboxEntry;

/// What all claims of one call have in common.
struct ClaimScope {
  HandlerId handler;             ///< the scope of the ids
  std::optional<Fence> fence{};  ///< absent: no partition is behind it
  MessageId owner;               ///< made for this call alone
  /// Owners of earlier calls of this process that threw, so that nothing ran under them: what they may have claimed is taken over.
  std::vector<MessageId> abandoned{};
  /// How long a claim is good for without renewal.
  std::chrono::milliseconds lease{30'000};
  /// What to do with a message whose lease ended while it was claimed, so that nobody knows whether it took effect.
  bool rerun_unknown = false;
  /// Their handlers start as soon as they are claimed; false: none starts before begin() has been called for it.
  bool begins = true;
  std::chrono::milliseconds lock_timeout{5'000};  ///< longest wait for a concurrent transaction
};

/// What claim() says of a message.
struct Claim {
  /// What became of the claim.
  enum class State : std::uint8_t {
    claimed,   ///< by this call: run it
    done,      ///< it has taken effect
    mismatch,  ///< the same id is done, or claimed, with another body
    running,   ///< somebody else's, and its lease has not ended
    parked,    ///< whether it took effect is not known, and somebody has to say (`turnstile inbox unpark`)
    repeated,  ///< an earlier entry of the same call has this id
  };
  State state = State::running;       ///< what became of the claim
  std::int64_t fence = 0;             ///< claimed: which claim of the message this is, from 1
  std::chrono::milliseconds left{0};  ///< running: until its lease ends
  bool is_copy =
      false;  ///< running: it was claimed for another record with this id; false: for this one, or that is not known
};

/// A claim that this owner has.
struct HeldClaim {
  MessageId id;            ///< of the message
  std::int64_t fence = 0;  ///< which claim of the message it is
};

/// How a claimed message ended.
struct ClaimEnd {
  /// How it ended.
  enum class Kind : std::uint8_t {
    done,        ///< it took effect
    failed,      ///< its handler said so: whoever gets it next may run it
    given_back,  ///< it was not run
  };
  Kind kind = Kind::done;                                      ///< how it ended
  HeldClaim claim;                                             ///< the claim that ends
  std::optional<std::string> response{};                       ///< done: what is kept for those who ask again
  std::vector<std::pair<OwnedMessage, MessageId>> messages{};  ///< done: into the outbox, each under its id
  std::string error{};                                         ///< failed: why
};

/// Each call is a transaction of its own. Thread-safe. Every call may throw StoreBusy (nothing was done), and StoreUnavailable: then
/// it may have been done all the same. The same may be said again.
class Claims {
 public:
  virtual ~Claims() = default;
  /// In the order of `entries`. Throws Fenced.
  virtual std::vector<Claim> claim(const ClaimScope& scope, std::span<const InboxEntry> entries) = 0;
  /// The handlers of these are about to start: only from here on nobody knows what they have done, should their leases end without a word.
  /// Before, such a claim is taken by whoever comes next, under each policy. Which were still the owner's.
  virtual std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const HeldClaim> held) = 0;
  /// Which were still the owner's: the others changed nothing.
  virtual std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ClaimEnd> ends) = 0;
  /// The leases begin anew. Which were still the owner's.
  virtual std::vector<bool> renew(HandlerId handler, const MessageId& owner, std::chrono::milliseconds lease,
                                  std::span<const HeldClaim> held) = 0;
};

}  // namespace turnstile
