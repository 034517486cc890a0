#pragma once
// A partition's messages between Kafka and the handlers: which may start, in which order, and up to which offset all
// are settled. Pure: time is an input; no threads, no I/O. Not thread-safe: the scheduler's lock protects it.
//
//   add() -> [waiting] -> hand_out() -> [running] -> settle() | put_back() | retry()
//
//Order::partition  one hand-out at a time; no message passes a message that waits for its retry
//Order::key        the same for each key; different keys do not wait for each other; without a key: any order
//Order::none       any order

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "delivery/work.hpp"
#include "engine/held_blocks.hpp"
#include "engine/ready_keys.hpp"
#include "engine/settled_messages.hpp"
#include "engine/waiting_messages.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile::detail {

using SteadyTime = std::chrono::steady_clock::time_point;

class Lane {
 public:
  /// For `many` see SettledMessages.
  explicit Lane(Order order, std::size_t many = 1'024) : order_(order), tracker_(many) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Adds a block, whose headers take so much memory. Offsets that were added before are dropped.
  void add(std::unique_ptr<ports::Block> block, std::size_t header_bytes = 0);
  /// Between the last message and this offset there is no message, and never will be.
  void pass(Offset offset) { tracker_.pass(offset); }
  /// Hands out up to `most` messages that may start now, in offset order within each key (for Order::partition and
  /// none: in offset order). The caller must report each exactly once. `past_suspects`: where the order allows it.
  void hand_out(std::size_t most, SteadyTime now, std::vector<Work>& out, bool past_suspects = false);
  /// Hands these out one at a time, marked as `alone`. The numbers are the failed runs of each.
  void single_out(std::map<Offset, int> suspects);
  /// No message of these keys starts until a later call leaves its key out. With Order::partition, none behind it either.
  void pause_keys(const std::vector<std::string>& keys);
  /// Whether the oldest unsettled message waits because its key is paused.
  [[nodiscard]] bool is_oldest_paused() const;
  /// Whether a suspect may still be unsettled.
  [[nodiscard]] bool has_suspects() const noexcept { return !suspects_.empty(); }
  /// Whether a message could be handed out at `now`.
  [[nodiscard]] bool ready(SteadyTime now) const;
  /// When the next retry is due, if a message waits for its retry.
  [[nodiscard]] std::optional<SteadyTime> next_due() const;

  void settle(const Work& work);
  /// The message was not run: it waits again at its place.
  void put_back(const Work& work);
  /// The message runs again at `due`, as this attempt.
  void retry(const Work& work, SteadyTime due, int attempt);

  /// Lends up to `most` messages from number `from` on that wait and do not run, but no suspects: the end of their run
  /// removes those from the database. The caller looks up whether they are settled. They may be handed out and settled
  /// meanwhile. If there are some, their blocks stay until return_lent().
  [[nodiscard]] std::vector<Work> lend_waiting(Seq from, std::size_t most);
  /// The look-up is over: the caller no longer uses the lent messages.
  void return_lent() noexcept { blocks_.return_lent(); }
  /// The message was waiting, and the look-up found it settled. Returns false and does nothing if it runs now, is
  /// settled, or is a suspect.
  bool settle_waiting(Seq seq);

  /// The offset up to which all messages are settled. Absent before the first message.
  [[nodiscard]] std::optional<Offset> position() const noexcept { return tracker_.position(); }
  [[nodiscard]] std::optional<Offset> first() const noexcept { return tracker_.first(); }  ///< absent: none arrived yet
  /// The offsets that were added and are not settled.
  [[nodiscard]] std::set<Offset> open_offsets() const { return tracker_.open_offsets(); }
  /// The offset after the last message. Absent before the first.
  [[nodiscard]] std::optional<Offset> taken_up_to() const noexcept { return tracker_.taken_up_to(); }
  /// The number of unsettled messages, which the window limits.
  [[nodiscard]] std::size_t unsettled() const noexcept { return tracker_.unsettled(); }
  /// Approximate memory of the blocks with unsettled messages.
  [[nodiscard]] std::size_t bytes() const noexcept { return blocks_.bytes(); }
  /// The mean size of the messages in the last block. 0: there was none yet.
  [[nodiscard]] std::size_t mean_bytes() const noexcept { return blocks_.mean_bytes(); }
  [[nodiscard]] std::size_t running() const noexcept { return running_; }
  [[nodiscard]] std::size_t delayed() const noexcept { return delayed_.size(); }  ///< messages that wait for a retry
  /// The oldest unsettled message: it blocks the partition.
  [[nodiscard]] const Message* oldest() const;
  /// The number of the attempt of `oldest` that runs now or comes next.
  [[nodiscard]] int attempt_of_oldest() const;
  /// Blocks whose messages are all settled, and that no look-up uses. Destroy them outside the lock.
  std::vector<std::unique_ptr<ports::Block>> take_spent() { return blocks_.take_spent(); }

 private:
  using KeyHash = ReadyKeys::KeyHash;
  struct Entry {
    const Message* message = nullptr;
    int attempt = 1;
    bool running = false;
    bool alone = false;
    KeyHash key = 0;
  };
  /// The unsettled messages of a key, oldest first. Only messages at the front are handed out.
  struct Stream {
    WaitingMessages waiting;
    int running = 0;
    bool blocked = false;  ///< its first message waits for its retry
    bool queued = false;   ///< it is in ready_keys_
  };

  void hand_out_in_sequence(std::size_t most, std::vector<Work>& out);
  void hand_out_free(std::size_t most, std::vector<Work>& out, bool past_suspects);
  void hand_out_by_key(std::size_t most, std::vector<Work>& out, bool past_suspects);
  void release_due(SteadyTime now);
  [[nodiscard]] bool is_any_due(SteadyTime now) const;
  [[nodiscard]] bool is_paused(Seq seq) const;
  [[nodiscard]] bool is_next_paused(SteadyTime now) const;
  void wait_again(Seq seq);
  void skip_paused();
  void give(Seq seq, std::vector<Work>& out);
  /// Whether it may be handed out together with these.
  [[nodiscard]] bool may_join(Seq seq, const std::vector<Work>& out) const;
  void mark(Entry& entry);
  [[nodiscard]] bool may_be_lent(Seq seq) const;
  void queue_key(KeyHash key, Stream& stream);
  std::optional<KeyHash> next_key();
  void return_to_stream(Seq seq, KeyHash key, bool blocked);
  void done_in_stream(KeyHash key);
  void finish_running(Seq seq);
  void settled(Seq seq);

  Order order_;
  std::map<Offset, int> suspects_;
  SettledMessages<Entry> tracker_;
  std::size_t running_ = 0;
  Seq cursor_ = 0;                          ///< first message that was never handed out (partition, none)
  std::set<Seq> returned_;                  ///< put back, due again, or set aside and not handed out (partition, none)
  std::multimap<SteadyTime, Seq> delayed_;  ///< wait for their retry
  std::map<KeyHash, Stream> streams_;
  ReadyKeys ready_keys_;
  Seq keyless_ = 0;
  HeldBlocks blocks_;
  std::set<KeyHash> paused_;
  std::set<Seq> held_back_;  ///< of paused keys, and would be handed out otherwise (none)
};

}  // namespace turnstile::detail
