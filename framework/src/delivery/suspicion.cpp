#include "delivery/suspicion.hpp"

#include <algorithm>

#include "turnstile/text.hpp"

namespace turnstile::detail {

SuspicionPtr suspect(ports::Trials& trials, const ports::PartitionClaim& claim, Offset first,
                     std::optional<Offset> until, const RunLog& run_log) {
  if (claim.is_clean) return nullptr;
  auto suspicion = std::make_shared<Suspicion>();
  if (until) suspicion->until = *until;
  for (const ports::Suspect& suspect : trials.take_over(claim.fence, first))
    suspicion->suspects[suspect.offset] = suspect.deaths;
  const std::string bound = until ? " below offset " + std::to_string(*until) : std::string();
  run_log.info(claim.at, "the last owner ended without releasing the partition: messages" + bound +
                             " are recorded in the database before they run");
  if (suspicion->suspects.empty()) return suspicion;
  run_log.warn(
      Code::crash_suspects, claim.at,
      text::count(static_cast<std::int64_t>(suspicion->suspects.size()), "message") +
          (suspicion->suspects.size() == 1 ? " was" : " were") + " running when a process died, the first at offset " +
          std::to_string(suspicion->suspects.begin()->first) + ": each runs while this process runs nothing else");
  for (const auto& [offset, deaths] : suspicion->suspects) {
    if (deaths == 0) continue;
    run_log.warn(Code::crash_suspects, to_string(TopicPartitionOffset{claim.at, offset}) + ": " +
                                           std::to_string(deaths) + (deaths == 1 ? " process has" : " processes have") +
                                           " died while running only this message");
  }
  return suspicion;
}

}  // namespace turnstile::detail
