#include "inbox/partitions.hpp"

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <utility>

#include "inbox/calls.hpp"
#include "turnstile/error.hpp"
#include "wire/encode.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

class PostgresPartitions final : public ports::Partitions {
 public:
  explicit PostgresPartitions(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override;
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override;
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override;

 private:
  const std::shared_ptr<Shared> shared_;
};

/// The text is pairs of a handler's number and its next offset.
std::vector<ports::HandlerProgress> progress_in(const std::string& text) {
  std::vector<ports::HandlerProgress> progress;
  std::istringstream numbers(text);
  for (ports::HandlerProgress each; numbers >> each.handler.value >> each.next;) progress.push_back(each);
  return progress;
}

std::vector<ports::PartitionClaim> PostgresPartitions::claim_partitions(const std::string& group,
                                                                        std::span<const TopicPartition> partitions,
                                                                        const ports::ClaimWait& wait) {
  if (partitions.empty()) return {};
  std::vector<std::string> topics;
  std::vector<std::int64_t> numbers;
  for (const auto& at : partitions) {
    topics.push_back(at.topic);
    numbers.push_back(at.partition);
  }
  const Param params[] = {Param(group), Param(topics), Param(numbers)};
  std::optional<StuckSessions> stuck;
  if (wait.stuck_after) stuck.emplace(StuckSessions{shared_->statements.claim, *wait.stuck_after, wait.on_ended});
  const auto claim_all = [&](Pipeline& pipeline) {
    pipeline.add(shared_->statements.add_fences, params, kCaller);
    pipeline.add(shared_->statements.claim, params, kCaller);
    pipeline.add(shared_->statements.claimed, params, kCaller, Pipeline::Keep::text);
  };
  const auto kept = call_in_transaction(*shared_, wait.lock_timeout, claim_all, stuck);

  std::vector<ports::PartitionClaim> claims;
  for (int row = 0; row < PQntuples(kept[0].get()); ++row) {
    ports::PartitionClaim claim;
    claim.at = {text_at(kept[0], row, 0), static_cast<std::int32_t>(number_at(kept[0], row, 1))};
    claim.fence = {static_cast<std::int32_t>(number_at(kept[0], row, 2)),
                   {number_at(kept[0], row, 3)},
                   number_at(kept[0], row, 4)};
    claim.incarnation = static_cast<std::int32_t>(number_at(kept[0], row, 5));
    if (!PQgetisnull(kept[0].get(), row, 6)) claim.watermark = number_at(kept[0], row, 6);
    if (!PQgetisnull(kept[0].get(), row, 7)) claim.progress = progress_in(text_at(kept[0], row, 7));
    claim.is_clean = number_at(kept[0], row, 8) == 1;
    claim.store = shared_->settings.schema + '/' + text_at(kept[0], row, 9);
    claims.push_back(std::move(claim));
  }
  // In the order of `partitions`.
  std::vector<ports::PartitionClaim> ordered;
  for (const auto& at : partitions) {
    const auto found = std::find_if(claims.begin(), claims.end(), [&](const auto& claim) { return claim.at == at; });
    if (found == claims.end())
      throw StoreUnavailable(to_string(at) + ": its fence disappeared while this consumer claimed it; try again");
    ordered.push_back(*found);
  }
  return ordered;
}

std::vector<ports::WatermarkState> PostgresPartitions::advance_watermarks(
    std::span<const ports::WatermarkUpdate> updates) {
  if (updates.empty()) return {};
  const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
    // If a crash of the server moves a watermark back, a consumer reads messages again that the inbox rejects. So this
    // commit need not wait for the disk.
    pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
    ArgumentBlock& to = pipeline.arguments();
    const std::size_t count = updates.size();
    add_int8_array(to, count, [&](std::size_t i) { return std::optional<std::int64_t>(updates[i].fence.slot); });
    add_int8_array(to, count, [&](std::size_t i) { return std::optional(updates[i].fence.epoch.value); });
    add_int8_array(to, count, [&](std::size_t i) { return std::optional(updates[i].fence.history); });
    add_int8_array(to, count, [&](std::size_t i) { return std::optional(updates[i].watermark); });
    add_int8_array(to, count, [&](std::size_t i) { return updates[i].known; });
    pipeline.add(shared_->statements.advance, kCaller, Pipeline::Keep::text);
  });
  std::map<std::int64_t, ports::WatermarkState> by_slot;
  for (int row = 0; row < PQntuples(kept[0].get()); ++row) {
    by_slot[number_at(kept[0], row, 0)] =
        number_at(kept[0], row, 1) == 0 ? ports::WatermarkState::moved : ports::WatermarkState::behind;
  }
  std::vector<ports::WatermarkState> states;
  for (const ports::WatermarkUpdate& update : updates) {
    const auto found = by_slot.find(update.fence.slot);
    states.push_back(found == by_slot.end() ? ports::WatermarkState::not_ours : found->second);
  }
  return states;
}

std::int32_t PostgresPartitions::begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) {
  const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
    pipeline.arguments().add_int(fence.slot);
    pipeline.arguments().add_int(fence.epoch.value);
    pipeline.arguments().add_int(first);
    pipeline.arguments().add_int(fence.history);
    pipeline.arguments().add_int(at_least);
    pipeline.add(shared_->statements.incarnation, kCaller, Pipeline::Keep::text);
  });
  if (PQntuples(kept[0].get()) == 0) throw_fenced(fence);
  return static_cast<std::int32_t>(number_at(kept[0], 0, 0));
}

}  // namespace

std::shared_ptr<ports::Partitions> open_partitions(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresPartitions>(std::move(shared));
}

}  // namespace turnstile::postgres
