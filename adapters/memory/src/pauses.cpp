// Pauses without a database.

#include <algorithm>

#include "inbox_state.hpp"

namespace turnstile::testing {

namespace {

bool has_ended(const ports::Pause& pause) {
  return pause.part.breaker_of.empty() && pause.until && *pause.until <= now();
}

class MemoryPauses final : public ports::Pauses {
 public:
  explicit MemoryPauses(std::shared_ptr<MemoryInbox::State> state) : state_(std::move(state)) {}

  std::vector<ports::Pause> active() override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::vector<ports::Pause> pauses;
    for (const auto& [part, pause] : state_->pauses) {
      if (has_ended(pause)) continue;
      pauses.push_back(pause);
      if (pause.until) pauses.back().left = std::max(*pause.until - now(), std::chrono::milliseconds(0));
    }
    return pauses;
  }

  void begin(const ports::Pause& pause) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    std::erase_if(state_->pauses, [](const auto& entry) { return has_ended(entry.second); });
    const auto [at, is_new] = state_->pauses.try_emplace(pause.part, pause);
    const Timestamp since = is_new ? now() : at->second.since;
    at->second = pause;
    at->second.since = since;
    at->second.until = pause.left ? std::optional(now() + *pause.left) : std::nullopt;
  }

  bool end(const ports::PausedPart& part) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const auto at = state_->pauses.find(part);
    if (at == state_->pauses.end()) return false;
    const bool ended = has_ended(at->second);
    state_->pauses.erase(at);
    return !ended;
  }

 private:
  const std::shared_ptr<MemoryInbox::State> state_;
};

}  // namespace

std::shared_ptr<ports::Pauses> MemoryInbox::pauses() { return std::make_shared<MemoryPauses>(state_); }

}  // namespace turnstile::testing
