#include "tokens/checkpoints.hpp"

#include <algorithm>
#include <utility>

#include "tokens/snapshot.hpp"

namespace turnstile::tokens {

namespace {

/// How many of its own checkpoints it keeps, because other members may still send theirs.
constexpr std::size_t kCheckpointsKept = 4;

}  // namespace

std::optional<std::string> Checkpoints::read(MemberId self, const State& state, Position position, const Event& event) {
  if (position > 0 && position % every_ == 0) {
    own_.push_back({position, digest(state)});
    if (own_.size() > kCheckpointsKept) own_.pop_front();
    is_sent_ = false;
  }
  const auto* keep = std::get_if<Keep>(&event.body);
  if (keep == nullptr || !keep->checkpoint || event.member == self || !state.members.contains(event.member))
    return std::nullopt;
  for (const Checkpoint& own : own_) {
    if (own.position != keep->checkpoint->position) continue;
    if (own.digest != keep->checkpoint->digest) {
      const auto& other = state.members.at(event.member);
      return "this member and " + other.about.client + " (" + other.about.host + ", pid " +
             std::to_string(other.about.pid) + ") have computed different states at position " +
             std::to_string(own.position) +
             " of the token log. No handler under a limit starts, because more than the limit might run. Stop all members of the domain, keep a copy of the "
             "log (turnstile log tail) for a report, and start them again";
    }
    agreed_ = std::max(agreed_, own.position);
  }
  return std::nullopt;
}

std::optional<Checkpoint> Checkpoints::take_unsent() {
  if (std::exchange(is_sent_, true)) return std::nullopt;
  return own_.back();
}

}  // namespace turnstile::tokens
