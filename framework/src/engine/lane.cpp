#include "engine/lane.hpp"

#include <algorithm>

namespace turnstile::detail {

namespace {

/// The memory of librdkafka for a record besides its key, payload and headers (measured on 2.0.2).
constexpr std::size_t kRecordBytes = 350;

std::size_t bytes_of(const Message& message) {
  return kRecordBytes + (message.key() ? message.key()->size() : 0) +
         (message.payload() ? message.payload()->size() : 0);
}

}  // namespace

void Lane::add(std::unique_ptr<ports::Block> block, std::size_t header_bytes) {
  std::size_t unsettled = 0, bytes = header_bytes;
  for (const Message& message : block->messages()) {
    if (!tracker_.take(message.offset(), Entry{&message, 1, false, false, 0})) continue;
    ++unsettled;
    bytes += bytes_of(message);
    const Seq seq = tracker_.end() - 1;
    if (!suspects_.empty()) mark(tracker_.entry(seq));
    if (order_ != Order::key) continue;
    // Each record without a key gets a stream of its own. Its number is as far from hashes as 64 bits allow.
    const KeyHash key = message.key() ? ReadyKeys::hash_of(*message.key()) : ~(keyless_++);
    tracker_.entry(seq).key = key;
    Stream& stream = streams_[key];
    stream.waiting.push_back(seq);
    queue_key(key, stream);
  }
  skip_paused();
  blocks_.add(std::move(block), tracker_.end(), unsettled, bytes);
}

void Lane::single_out(std::map<Offset, int> suspects) {
  suspects_ = std::move(suspects);
  for (Seq seq = tracker_.base(); seq < tracker_.end(); ++seq) {
    if (tracker_.is_open(seq)) mark(tracker_.entry(seq));
  }
}

void Lane::mark(Entry& entry) {
  const auto suspect = suspects_.find(entry.message->offset());
  entry.alone = suspect != suspects_.end();
  if (entry.alone) entry.attempt = std::max(entry.attempt, suspect->second + 1);
}

void Lane::hand_out(std::size_t most, SteadyTime now, std::vector<Work>& out, bool past_suspects) {
  release_due(now);
  switch (order_) {
    case Order::partition: hand_out_in_sequence(most, out); break;
    case Order::key: hand_out_by_key(most, out, past_suspects); break;
    case Order::none: hand_out_free(most, out, past_suspects); break;
  }
}

void Lane::hand_out_in_sequence(std::size_t most, std::vector<Work>& out) {
  if (running_ > 0 || !delayed_.empty()) return;
  hand_out_free(most, out, false);
}

void Lane::hand_out_free(std::size_t most, std::vector<Work>& out, bool past_suspects) {
  for (auto next = returned_.begin(); most > 0 && next != returned_.end();) {
    if (past_suspects && tracker_.entry(*next).alone) {
      ++next;
      continue;
    }
    if (is_paused(*next) || !may_join(*next, out)) return;
    give(*next, out);
    next = returned_.erase(next);
    --most;
  }
  for (cursor_ = std::max(cursor_, tracker_.base()); most > 0 && cursor_ < tracker_.end(); ++cursor_) {
    if (!tracker_.is_open(cursor_)) continue;
    if (is_paused(cursor_) && order_ == Order::none) {
      held_back_.insert(cursor_);
      continue;
    }
    if (past_suspects && tracker_.entry(cursor_).alone) {
      returned_.insert(cursor_);
      continue;
    }
    if (is_paused(cursor_) || !may_join(cursor_, out)) return;
    give(cursor_, out);
    --most;
  }
  skip_paused();
}

void Lane::hand_out_by_key(std::size_t most, std::vector<Work>& out, bool past_suspects) {
  const std::size_t from = out.size();
  std::vector<KeyHash> passed;
  while (most > 0) {
    const auto key = next_key();
    if (!key) break;
    Stream& stream = streams_[*key];
    if (past_suspects && tracker_.entry(stream.waiting.front()).alone) {
      passed.push_back(*key);
      continue;
    }
    if (!may_join(stream.waiting.front(), out)) {
      queue_key(*key, stream);
      break;
    }
    // One message of each key, so that a hand-out contains many keys. More of a key only if it is the last that is
    // ready.
    do {
      give(stream.waiting.front(), out);
      stream.waiting.pop_front();
      ++stream.running;
      --most;
    } while (most > 0 && !stream.waiting.empty() && may_join(stream.waiting.front(), out) && ready_keys_.empty());
  }
  for (const KeyHash key : passed) queue_key(key, streams_[key]);
  std::sort(out.begin() + static_cast<std::ptrdiff_t>(from), out.end(),
            [](const Work& a, const Work& b) { return a.seq < b.seq; });
}

bool Lane::may_join(Seq seq, const std::vector<Work>& out) const {
  // A message that has failed runs by itself, so that it does not roll back other messages again and again.
  const Entry& entry = tracker_.entry(seq);
  return out.empty() || !(out.back().alone || out.back().attempt > 1 || entry.alone || entry.attempt > 1);
}

void Lane::give(Seq seq, std::vector<Work>& out) {
  Entry& entry = tracker_.entry(seq);
  out.push_back({entry.message, seq, entry.attempt, entry.alone});
  entry.running = true;
  ++running_;
}

void Lane::release_due(SteadyTime now) {
  while (!delayed_.empty() && delayed_.begin()->first <= now) {
    const Seq seq = delayed_.begin()->second;
    delayed_.erase(delayed_.begin());
    if (order_ == Order::key) {
      const KeyHash key = tracker_.entry(seq).key;
      Stream& stream = streams_[key];
      stream.blocked = false;
      queue_key(key, stream);
    } else {
      wait_again(seq);
    }
  }
}

/// Of the messages that wait for their retry and are not paused.
bool Lane::is_any_due(SteadyTime now) const {
  for (const auto& [due, seq] : delayed_) {
    if (due > now) return false;
    if (!is_paused(seq)) return true;
  }
  return false;
}

bool Lane::ready(SteadyTime now) const {
  const bool due = is_any_due(now);
  if (order_ == Order::key) {
    return due || !ready_keys_.empty();
  }
  const bool waiting = !returned_.empty() || cursor_ < tracker_.end();
  if (order_ == Order::none) return due || waiting;
  // A retry that is due and paused does not hold what comes before it.
  const bool is_over = !delayed_.empty() && delayed_.begin()->first <= now;
  return running_ == 0 && (is_over || (delayed_.empty() && waiting)) && !is_next_paused(now);
}

std::optional<SteadyTime> Lane::next_due() const {
  if (delayed_.empty()) return std::nullopt;
  return delayed_.begin()->first;
}

void Lane::finish_running(Seq seq) {
  tracker_.entry(seq).running = false;
  --running_;
}

void Lane::settle(const Work& work) {
  finish_running(work.seq);
  if (order_ == Order::key) done_in_stream(tracker_.entry(work.seq).key);
  if (work.alone) suspects_.erase(work.message->offset());
  settled(work.seq);
}

void Lane::settled(Seq seq) {
  if (!tracker_.settle(seq)) return;
  tracker_.put_aside([this](Seq aside) {
    if (order_ != Order::key && aside >= cursor_) wait_again(aside);
  });
  blocks_.settled(seq);
}

void Lane::put_back(const Work& work) {
  finish_running(work.seq);
  if (order_ == Order::key) return_to_stream(work.seq, tracker_.entry(work.seq).key, false);
  else wait_again(work.seq);
}

void Lane::retry(const Work& work, SteadyTime due, int attempt) {
  finish_running(work.seq);
  tracker_.entry(work.seq).attempt = attempt;
  delayed_.emplace(due, work.seq);
  if (order_ == Order::key) return_to_stream(work.seq, tracker_.entry(work.seq).key, true);
}

std::vector<Work> Lane::lend_waiting(Seq from, std::size_t most) {
  std::vector<Work> found;
  for (Seq seq = std::max(from, tracker_.base()); seq < tracker_.end() && found.size() < most; ++seq) {
    if (!may_be_lent(seq)) continue;
    found.push_back({tracker_.entry(seq).message, seq, tracker_.entry(seq).attempt});
  }
  if (!found.empty()) blocks_.lend();
  return found;
}

bool Lane::may_be_lent(Seq seq) const {
  return tracker_.is_open(seq) && !tracker_.entry(seq).running && !tracker_.entry(seq).alone;
}

bool Lane::settle_waiting(Seq seq) {
  if (!may_be_lent(seq)) return false;
  returned_.erase(seq);
  held_back_.erase(seq);
  const bool delayed = std::erase_if(delayed_, [&](const auto& d) { return d.second == seq; }) > 0;
  if (order_ == Order::key) {
    const KeyHash key = tracker_.entry(seq).key;
    Stream& stream = streams_[key];
    stream.waiting.erase(seq);
    if (delayed) stream.blocked = false;
    // A key without messages may still be in ready_keys_: next_key() skips it.
    if (stream.waiting.empty() && stream.running == 0 && !stream.queued) streams_.erase(key);
    else queue_key(key, stream);
  }
  settled(seq);
  return true;
}

const Message* Lane::oldest() const {
  const auto seq = tracker_.oldest();
  return seq ? tracker_.entry(*seq).message : nullptr;
}

int Lane::attempt_of_oldest() const {
  const auto seq = tracker_.oldest();
  return seq ? tracker_.entry(*seq).attempt : 1;
}

void Lane::queue_key(KeyHash key, Stream& stream) {
  if (stream.queued || stream.blocked || stream.running > 0 || stream.waiting.empty()) return;
  if (!paused_.empty() && paused_.contains(key)) return;
  stream.queued = true;
  // The scheduler puts it back until nothing else runs. If another key came then, it would never run.
  if (!suspects_.empty() && tracker_.entry(stream.waiting.front()).alone) ready_keys_.add_first(key);
  else ready_keys_.add(key, stream.waiting.size());
}

std::optional<Lane::KeyHash> Lane::next_key() {
  while (const auto key = ready_keys_.take()) {
    const auto it = streams_.find(*key);
    it->second.queued = false;
    if (!it->second.waiting.empty()) return key;
    if (it->second.running == 0) streams_.erase(it);
  }
  return std::nullopt;
}

void Lane::return_to_stream(Seq seq, KeyHash key, bool blocked) {
  Stream& stream = streams_[key];
  --stream.running;
  stream.blocked = stream.blocked || blocked;
  stream.waiting.insert(seq);
  queue_key(key, stream);
}

void Lane::done_in_stream(KeyHash key) {
  const auto it = streams_.find(key);
  Stream& stream = it->second;
  --stream.running;
  if (stream.running == 0 && stream.waiting.empty()) streams_.erase(it);
  else queue_key(key, stream);
}

}  // namespace turnstile::detail
