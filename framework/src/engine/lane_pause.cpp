// How a lane holds the messages of paused keys.

#include <algorithm>
#include <utility>

#include "engine/lane.hpp"

namespace turnstile::detail {

void Lane::pause_keys(const std::vector<std::string>& keys) {
  std::set<KeyHash> paused;
  for (const std::string& key : keys) paused.insert(ReadyKeys::hash_of(key));
  if (paused == paused_) return;
  const auto before = std::exchange(paused_, std::move(paused));
  if (order_ == Order::none) {
    std::set<Seq> waiting = std::exchange(held_back_, {});
    waiting.merge(returned_);
    returned_.clear();
    for (const Seq seq : waiting) wait_again(seq);
    skip_paused();
  }
  if (order_ != Order::key) return;
  for (const KeyHash key : paused_) {
    const auto stream = streams_.find(key);
    if (stream == streams_.end() || !std::exchange(stream->second.queued, false)) continue;
    ready_keys_.remove(key);
    if (stream->second.waiting.empty() && stream->second.running == 0) streams_.erase(stream);
  }
  for (const KeyHash key : before) {
    if (const auto stream = streams_.find(key); stream != streams_.end()) queue_key(key, stream->second);
  }
}

bool Lane::is_oldest_paused() const {
  const auto seq = tracker_.oldest();
  return seq && !tracker_.entry(*seq).running && is_paused(*seq);
}

bool Lane::is_paused(Seq seq) const {
  if (paused_.empty()) return false;
  const auto key = tracker_.entry(seq).message->key();
  return key && paused_.contains(ReadyKeys::hash_of(*key));
}

/// Of Order::partition: whether the message that comes next has a paused key. Messages behind it must not pass it.
bool Lane::is_next_paused(SteadyTime now) const {
  if (paused_.empty()) return false;
  Seq next = std::max(cursor_, tracker_.base());
  while (next < tracker_.end() && !tracker_.is_open(next)) ++next;
  if (!returned_.empty()) next = std::min(next, *returned_.begin());
  for (const auto& [due, seq] : delayed_) {
    if (due > now) break;
    next = std::min(next, seq);
  }
  return next < tracker_.end() && is_paused(next);
}

/// The message waits again at its place.
void Lane::wait_again(Seq seq) { (order_ == Order::none && is_paused(seq) ? held_back_ : returned_).insert(seq); }

/// For Order::none: the message at the cursor is one that may start, so that ready() need not look further.
void Lane::skip_paused() {
  if (paused_.empty() || order_ != Order::none) return;
  for (cursor_ = std::max(cursor_, tracker_.base()); cursor_ < tracker_.end(); ++cursor_) {
    if (!tracker_.is_open(cursor_)) continue;
    if (!is_paused(cursor_)) return;
    held_back_.insert(cursor_);
  }
}

}  // namespace turnstile::detail
