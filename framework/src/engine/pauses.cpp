#include "engine/pauses.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

bool covers(const ports::PausedPart& part, const TopicPartition& at) {
  return part.topic == at.topic && (!part.partition || *part.partition == at.partition);
}

}  // namespace

bool Pauses::is_same(const Pauses& other) const {
  return unknown == other.unknown && std::equal(all.begin(), all.end(), other.all.begin(), other.all.end(),
                                                [](const ports::Pause& a, const ports::Pause& b) {
                                                  return a.part == b.part && a.by == b.by && a.why == b.why &&
                                                         a.until == b.until;
                                                });
}

bool Pauses::hold(const TopicPartition& at) const {
  return std::any_of(all.begin(), all.end(),
                     [&](const ports::Pause& pause) { return !pause.part.key && covers(pause.part, at); });
}

std::vector<std::string> Pauses::keys_in(const TopicPartition& at) const {
  std::vector<std::string> keys;
  for (const ports::Pause& pause : all) {
    if (pause.part.key && covers(pause.part, at)) keys.push_back(*pause.part.key);
  }
  return keys;
}

std::string name_of(const ports::PausedPart& part) {
  std::string name = "topic " + part.topic;
  if (part.partition) name = "partition " + std::to_string(*part.partition) + " of " + name;
  return part.key ? "a key of " + name : name;
}

}  // namespace turnstile::detail
