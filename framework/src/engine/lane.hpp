#pragma once
// A partition's messages between Kafka and the handlers: what may start, in which order, and how far all is settled.
// Pure: time is an input, no thread, no I/O. Not thread-safe: the scheduler's lock guards it.
//
//   add() -> [waiting] -> hand_out() -> [running] -> settle() | put_back() | retry()
//
// Order::partition  one hand-out at a time; nothing passes a message that waits for its retry
// Order::key        the same for each key; keys do not wait for one another. No key: free.
// Order::none       everything is free

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "delivery/work.hpp"
#include "engine/offset_tracker.hpp"
#include "turnstile/message.hpp"
#include "turnstile/ports/broker.hpp"

namespace turnstile {

using SteadyTime = std::chrono::steady_clock::time_point;

class Lane {
 public:
  /// `many`: see OffsetTracker.
  explicit Lane(Order order, std::size_t many = 1'024) : order_(order), tracker_(many) {}
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  /// Takes a block in; offsets that were taken before are dropped.
  void add(std::unique_ptr<Block> block);
  /// There is no message between the last one and this offset, and never will be.
  void pass(Offset offset) { tracker_.pass(offset); }
  /// Gives out at most `most` messages that may start now, in offset order within each key (and, for Order::partition
  /// and none, over all). The caller reports each of them back exactly once.
  void hand_out(std::size_t most, SteadyTime now, std::vector<Work>& out);
  /// These are handed out one at a time, marked as `alone`. With the runs of each that have failed.
  void single_out(std::map<Offset, int> suspects);
  /// Some of them are not settled, as far as is known.
  [[nodiscard]] bool has_suspects() const noexcept { return !suspects_.empty(); }
  /// Something could be handed out at `now`.
  [[nodiscard]] bool ready(SteadyTime now) const;
  /// When a message that waits for its retry is due, if any waits.
  [[nodiscard]] std::optional<SteadyTime> next_due() const;

  void settle(const Work& work);
  /// It was not run: it waits again, at its place.
  void put_back(const Work& work);
  /// It comes again at `due`, with that attempt number.
  void retry(const Work& work, SteadyTime due, int attempt);

  /// Messages from number `from` on that wait and do not run, at most `most`: to look up whether they are settled already. They may be
  /// handed out and settled meanwhile; unless there are none, their blocks stay until return_lent().
  [[nodiscard]] std::vector<Work> lend_waiting(Seq from, std::size_t most);
  /// Who has looked up looks at them no more.
  void return_lent() noexcept { --lent_; }
  /// A message that waits turned out to be settled. False, and nothing happens, when it runs meanwhile, or has gone by.
  bool settle_waiting(Seq seq);

  /// Offset up to which all is settled; nothing before the first message.
  [[nodiscard]] std::optional<Offset> position() const noexcept { return tracker_.position(); }
  /// The first message; nothing before it.
  [[nodiscard]] std::optional<Offset> first() const noexcept { return tracker_.first(); }
  /// What was taken, and is not settled.
  [[nodiscard]] std::set<Offset> open_offsets() const { return tracker_.open_offsets(); }
  /// Behind the last message; nothing before the first.
  [[nodiscard]] std::optional<Offset> taken_up_to() const noexcept { return tracker_.taken_up_to(); }
  /// Messages that are not settled: what the window bounds.
  [[nodiscard]] std::size_t unsettled() const noexcept { return tracker_.unsettled(); }
  /// Memory of the blocks of which a message is not settled, about.
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  /// The mean size of the messages of the last block; 0: there was none yet.
  [[nodiscard]] std::size_t mean_bytes() const noexcept { return mean_bytes_; }
  [[nodiscard]] std::size_t running() const noexcept { return running_; }
  /// The oldest message that is not settled: what holds the partition.
  [[nodiscard]] const Message* oldest() const;
  /// The number of the run of `oldest` that is under way, or comes next.
  [[nodiscard]] int attempt_of_oldest() const;
  /// Blocks of which every message is settled, and at which nobody looks. Destroy them outside the lock.
  std::vector<std::unique_ptr<Block>> take_spent() {
    if (lent_ > 0) return {};
    return std::exchange(spent_, {});
  }

 private:
  using KeyHash = std::uint64_t;
  struct Entry {
    const Message* message = nullptr;
    int attempt = 1;
    bool running = false;
    bool alone = false;
    KeyHash key = 0;
  };
  /// The messages of one key that are not settled, oldest first; only the run at the front is ever handed out.
  struct Stream {
    std::deque<Seq> waiting;
    int running = 0;
    bool blocked = false;  ///< its front waits for its retry
    bool queued = false;   ///< stands in ready_keys_
  };

  void hand_out_in_sequence(std::size_t most, std::vector<Work>& out);
  void hand_out_free(std::size_t most, std::vector<Work>& out);
  void hand_out_by_key(std::size_t most, std::vector<Work>& out);
  void release_due(SteadyTime now);
  void give(Seq seq, std::vector<Work>& out);
  /// Whether it may be handed out together with these.
  [[nodiscard]] bool may_join(Seq seq, const std::vector<Work>& out) const;
  void mark(Entry& entry);
  void queue_key(KeyHash key, Stream& stream);
  std::optional<KeyHash> next_key();
  void return_to_stream(Seq seq, KeyHash key, bool blocked);
  void done_in_stream(KeyHash key);
  void finish_running(Seq seq);
  void settled(Seq seq);

  Order order_;
  std::map<Offset, int> suspects_;
  OffsetTracker<Entry> tracker_;
  std::size_t running_ = 0;
  Seq cursor_ = 0;                          ///< first message that was never handed out (partition, none)
  std::set<Seq> returned_;                  ///< put back, due again, or aside and never handed out (partition, none)
  std::multimap<SteadyTime, Seq> delayed_;  ///< wait for their retry
  std::map<KeyHash, Stream> streams_;
  /// Keys that may start, by the length of their backlog (log2): a long one bounds the whole partition's time, so it
  /// goes first; every eighth turn takes the shortest, so that nobody starves.
  static constexpr std::size_t kClasses = 20;
  std::deque<KeyHash> ready_keys_[kClasses];
  unsigned turn_ = 0;
  Seq keyless_ = 0;
  struct Held {
    std::unique_ptr<Block> block;
    Seq end = 0;                ///< the number after its last message
    std::size_t unsettled = 0;  ///< of its messages
    std::size_t bytes = 0;
  };
  std::deque<Held> blocks_;  ///< those of which a message is not settled, the oldest first
  std::size_t bytes_ = 0;    ///< of blocks_
  std::size_t mean_bytes_ = 0;
  std::vector<std::unique_ptr<Block>> spent_;
  int lent_ = 0;  ///< look-ups that are out
};

}  // namespace turnstile
