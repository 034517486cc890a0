// Trials without a database.

#include <algorithm>
#include <limits>

#include "inbox_state.hpp"

namespace turnstile::testing {

namespace {

constexpr Offset kFirst = std::numeric_limits<Offset>::min();

class MemoryTrials final : public ports::Trials {
 public:
  explicit MemoryTrials(std::shared_ptr<MemoryInbox::State> state) : state_(std::move(state)) {}

  std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const FenceRow& owned = state_->owned(fence);
    const auto in_slot = [&](auto at, const auto& rows) { return at != rows.end() && at->first.first == fence.slot; };
    for (auto at = state_->trials.lower_bound({fence.slot, kFirst}); in_slot(at, state_->trials);) {
      if (at->second.epoch >= fence.epoch.value) {
        ++at;
        continue;
      }
      blame(fence.slot, at->second);
      at = state_->trials.erase(at);
    }
    const auto now = std::chrono::steady_clock::now();
    std::erase_if(state_->outlasting, [&](const auto& row) {
      const auto& [slot, outlasting] = row;
      if (slot != fence.slot || outlasting.trial.epoch >= fence.epoch.value || now < outlasting.ends_by) return false;
      blame(slot, outlasting.trial);
      return true;
    });
    std::vector<ports::Suspect> suspects;
    for (auto at = state_->suspects.lower_bound({fence.slot, kFirst}); in_slot(at, state_->suspects);) {
      if (at->second.incarnation != owned.incarnation || at->first.second < first) {
        at = state_->suspects.erase(at);
        continue;
      }
      suspects.push_back({at->first.second, at->second.deaths});
      ++at;
    }
    return suspects;
  }

  void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const FenceRow& owned = state_->owned(fence);
    state_->trials[{fence.slot, offsets.front()}] = {
        fence.epoch.value, owned.incarnation, {offsets.begin(), offsets.end()}, alone};
  }

  void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    const bool is_same = fence.history == state_->history;
    std::erase_if(state_->outlasting, [&](const auto& row) {
      const TrialRow& begun = row.second.trial;
      if (row.first != fence.slot || begun.epoch > fence.epoch.value) return false;
      const auto is_settled = [&](Offset offset) { return std::ranges::find(settled, offset) != settled.end(); };
      return (begun.epoch == fence.epoch.value && begun.offsets.front() == offsets.front()) ||
             (is_same && std::ranges::all_of(begun.offsets, is_settled));
    });
    const auto trial = state_->trials.find({fence.slot, offsets.front()});
    const bool is_its = trial != state_->trials.end() && trial->second.epoch == fence.epoch.value;
    if (is_its && !is_same) trial->second.alone = false;
    if (!is_same) return;
    if (is_its) state_->trials.erase(trial);
    for (const Offset offset : settled) state_->suspects.erase({fence.slot, offset});
    for (const Offset offset : offsets) {
      const auto suspect = state_->suspects.find({fence.slot, offset});
      if (suspect == state_->suspects.end() || suspect->second.epoch != fence.epoch.value) continue;
      suspect->second.deaths = std::max(0, suspect->second.deaths - 1);
      suspect->second.epoch = 0;
    }
  }

  void release(std::span<const Release> partitions) override {
    const std::lock_guard lock(state_->mutex);
    state_->require_available();
    for (const Release& release : partitions) {
      give_up(release);
      if (release.fence.history != state_->history) continue;
      FenceRow* const row = state_->find_owned(release.fence);
      if (row == nullptr || !release.is_proved) continue;
      row->released_epoch = row->epoch;
      state_->outlasting.erase(release.fence.slot);
    }
  }

 private:
  void give_up(const Release& release) {
    const auto is_its = [&](std::int32_t slot, const TrialRow& trial) {
      return slot == release.fence.slot && trial.epoch == release.fence.epoch.value;
    };
    const auto ends_by = std::chrono::steady_clock::now() + release.runs_for.value_or(std::chrono::milliseconds(0));
    if (!release.runs_for)
      std::erase_if(state_->outlasting, [&](const auto& row) { return is_its(row.first, row.second.trial); });
    for (auto& [slot, row] : state_->outlasting) {
      if (is_its(slot, row.trial)) row.ends_by = ends_by;
    }
    if (release.fence.history != state_->history) return;
    std::erase_if(state_->trials, [&](const auto& row) {
      const auto& [at, trial] = row;
      if (!is_its(at.first, trial)) return false;
      if (release.runs_for) state_->outlasting.insert({at.first, {trial, ends_by}});
      return true;
    });
  }
  void blame(std::int32_t slot, const TrialRow& trial) {
    for (const Offset offset : trial.offsets) {
      SuspectRow& row = state_->suspects[{slot, offset}];
      if (row.incarnation != trial.incarnation) row = {};
      row.incarnation = trial.incarnation;
      if (!trial.alone) continue;
      ++row.deaths;
      row.epoch = trial.epoch;
    }
  }

  std::shared_ptr<MemoryInbox::State> state_;
};

}  // namespace

std::shared_ptr<ports::Trials> MemoryInbox::trials() { return std::make_shared<MemoryTrials>(state_); }

}  // namespace turnstile::testing
