#pragma once
// Blocks of messages for tests of Lane.

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "engine/lane.hpp"
#include "tests/support/owned_block.hpp"

namespace turnstile::detail {

using std::chrono::milliseconds;

inline const SteadyTime kNow{std::chrono::seconds(1000)};

/// Messages at the offsets `from`, from+1, …. An empty text stands for no key.
inline std::unique_ptr<ports::Block> block(Offset from, const std::vector<std::string>& keys) {
  std::vector<OwnedMessage> owned;
  for (const auto& key : keys) {
    OwnedMessage message;
    message.topic = "t";
    message.offset = from++;
    if (!key.empty()) message.key = key;
    owned.push_back(std::move(message));
  }
  return std::make_unique<test::OwnedBlock>(std::move(owned));
}

inline std::vector<Offset> offsets(const std::vector<Work>& works) {
  std::vector<Offset> all;
  for (const auto& work : works) all.push_back(work.message->offset());
  return all;
}

inline std::vector<Work> hand_out(Lane& lane, std::size_t most, SteadyTime now = kNow) {
  std::vector<Work> works;
  lane.hand_out(most, now, works);
  return works;
}

}  // namespace turnstile::detail
