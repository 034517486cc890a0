// Claims without a database.

#include <algorithm>
#include <set>

#include "inbox_state.hpp"

namespace turnstile::testing {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

class MemoryClaims final : public ports::Claims {
 public:
  explicit MemoryClaims(std::shared_ptr<MemoryInbox::State> state) : state_(std::move(state)) {}

  std::vector<ports::Claim> claim(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    if (scope.fence) state_->owned(*scope.fence);
    std::vector<ports::Claim> claims;
    std::set<MessageId> seen;
    for (const ports::InboxEntry& entry : entries) {
      if (seen.insert(entry.id).second) claims.push_back(claim_one(scope, entry));
      else claims.push_back({.state = ports::Claim::State::repeated});
    }
    return claims;
  }

  std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const ports::HeldClaim> held) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::vector<bool> still;
    for (const ports::HeldClaim& claim : held) {
      ClaimRow* row = find(handler, owner, claim);
      if (row != nullptr) row->begun = true;
      still.push_back(row != nullptr);
    }
    return still;
  }

  std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::vector<bool> held;
    for (const ports::ClaimEnd& end : ends) {
      ClaimRow* row = find(handler, owner, end.claim);
      held.push_back(row != nullptr);
      if (row != nullptr) end_one({handler, end.claim.id}, *row, end);
    }
    return held;
  }

  std::vector<bool> renew(HandlerId handler, const MessageId& owner, milliseconds lease,
                          std::span<const ports::HeldClaim> held) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::vector<bool> still;
    for (const ports::HeldClaim& claim : held) {
      ClaimRow* row = find(handler, owner, claim);
      if (row != nullptr) row->expires = Clock::now() + lease;
      still.push_back(row != nullptr);
    }
    return still;
  }

  ports::ClaimCounts count(std::optional<HandlerId> handler) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const auto now = Clock::now();
    ports::ClaimCounts counts;
    for (const auto& [key, row] : state_->claims) {
      if (handler && key.first != *handler) continue;
      if (row.state == State::failed) ++counts.failed;
      else if (row.state == State::parked) ++counts.parked;
      else ++(row.begun && row.expires < now ? counts.in_doubt : counts.running);
    }
    return counts;
  }

 private:
  using State = ClaimRow::State;

  ports::Claim claim_one(const ports::ClaimScope& scope, const ports::InboxEntry& entry) {
    const InboxKey key{scope.handler, entry.id};
    const std::pair where{scope.fence ? scope.fence->slot : 0, entry.offset};
    if (const auto done = state_->ids.find(key); done != state_->ids.end())
      return {.state = entry.differs_from(done->second) ? ports::Claim::State::mismatch : ports::Claim::State::done};
    const auto now = Clock::now();
    const auto [at, is_new] = state_->claims.try_emplace(key);
    ClaimRow& row = at->second;
    const bool doubted = entry.in_doubt && !scope.rerun_unknown;
    if (is_new) {
      if (doubted) row.state = State::parked;
    } else {
      const bool ours = row.owner == scope.owner ||
                        std::find(scope.abandoned.begin(), scope.abandoned.end(), row.owner) != scope.abandoned.end();
      const bool claimed = row.state == State::claimed, lapsed = row.expires < now;
      if (row.state == State::parked || (claimed && !ours && !lapsed)) {
        if (entry.differs_from(row.fingerprint)) return {.state = ports::Claim::State::mismatch};
        if (!claimed) return {.state = ports::Claim::State::parked};
        return {.state = ports::Claim::State::running,
                .fence = row.fence,
                .left = std::chrono::ceil<milliseconds>(row.expires - now),
                .is_copy = row.where != where};
      }
      ++row.fence;
      const bool is_unknown = claimed && !ours && row.begun && !scope.rerun_unknown;
      row.state = doubted || is_unknown ? State::parked : State::claimed;
    }
    row.begun = scope.begins;
    row.owner = scope.owner;
    row.expires = now + scope.lease;
    row.where = where;
    if (entry.fingerprint) row.fingerprint = entry.fingerprint;
    return {.state = row.state == State::parked ? ports::Claim::State::parked : ports::Claim::State::claimed,
            .fence = row.fence};
  }

  ClaimRow* find(HandlerId handler, const MessageId& owner, const ports::HeldClaim& claim) {
    const auto row = state_->claims.find({handler, claim.id});
    if (row == state_->claims.end() || row->second.state != State::claimed) return nullptr;
    return row->second.owner == owner && row->second.fence == claim.fence ? &row->second : nullptr;
  }

  void end_one(const InboxKey& key, ClaimRow& row, const ports::ClaimEnd& end) {
    if (end.kind == ports::ClaimEnd::Kind::failed || (end.kind == ports::ClaimEnd::Kind::given_back && row.fence > 1)) {
      row.state = State::failed;
      return;
    }
    if (end.kind == ports::ClaimEnd::Kind::done) {
      state_->ids.emplace(key, row.fingerprint);
      if (end.response) state_->responses[key] = *end.response;
      for (const auto& [message, id] : end.messages) state_->put_out(outbox_record(message, id));
    }
    state_->claims.erase(key);
  }

  std::shared_ptr<MemoryInbox::State> state_;
};

}  // namespace

std::shared_ptr<ports::Claims> MemoryInbox::claims() { return std::make_shared<MemoryClaims>(state_); }

void MemoryInbox::lapse_leases() {
  const std::lock_guard lock(state_->mutex);
  for (auto& [key, row] : state_->claims) row.expires = Clock::now() - std::chrono::nanoseconds(1);
}

}  // namespace turnstile::testing
