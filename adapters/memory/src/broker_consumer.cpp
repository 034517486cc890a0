#include <algorithm>
#include <utility>

#include "broker_cluster.hpp"
#include "turnstile/error.hpp"

namespace turnstile::testing {
namespace {

using Clock = std::chrono::steady_clock;

class MemoryBlock final : public Block {
 public:
  explicit MemoryBlock(std::vector<Record> records) : records_(std::move(records)) {
    views_.reserve(records_.size());
    for (const auto& record : records_) views_.emplace_back(*record);
  }
  [[nodiscard]] std::span<const Message> messages() const noexcept override { return views_; }

 private:
  std::vector<Record> records_;
  std::vector<Message> views_;
};

class MemoryConsumer final : public BrokerConsumer {
 public:
  MemoryConsumer(std::shared_ptr<MemoryCluster> cluster, const std::string& group)
      : cluster_(std::move(cluster)), me_(std::make_shared<MemoryMember>()) {
    me_->group = group;
    std::lock_guard lock(cluster_->mutex);
    cluster_->groups.try_emplace(group);
    cluster_->members.push_back(me_);
  }
  ~MemoryConsumer() override {
    if (!closed_) close();
  }

  void subscribe(const std::vector<std::string>& topics, AssignmentListener& listener) override {
    std::lock_guard lock(cluster_->mutex);
    listener_ = &listener;
    me_->topics = {topics.begin(), topics.end()};
    me_->subscribed = true;
    cluster_->rebalance(me_->group);
  }

  void poll(std::chrono::milliseconds timeout) override {
    const auto end = Clock::now() + timeout;
    std::unique_lock lock(cluster_->mutex);
    for (;;) {
      if (!me_->crashed) {
        check_topics();
        serve_group(lock);
      }
      if (std::exchange(me_->rung, false)) return;
      if (!cluster_->changed.wait_until(lock, end, [this] { return me_->rung || group_wants_me(); })) return;
    }
  }

  std::unique_ptr<Block> take(const TopicPartition& from, std::size_t most) override {
    std::lock_guard lock(cluster_->mutex);
    auto* partition = cluster_->find(from);
    if (me_->crashed || !partition || !me_->owned.contains(from)) return nullptr;
    auto& position = positions_[from];
    const auto& all = partition->records;
    const auto begin = std::lower_bound(all.begin(), all.end(), position,
                                        [](const Record& record, Offset offset) { return record->offset < offset; });
    const auto count = std::min<std::size_t>(most, static_cast<std::size_t>(all.end() - begin));
    if (count == 0) return nullptr;
    std::vector<Record> records(begin, begin + static_cast<std::ptrdiff_t>(count));
    position = records.back()->offset + 1;
    return std::make_unique<MemoryBlock>(std::move(records));
  }

  // Not from a signal handler, unlike Kafka's: this takes a lock.
  void wake() noexcept override {
    std::lock_guard lock(cluster_->mutex);
    me_->rung = true;
    cluster_->changed.notify_all();
  }

  std::vector<std::optional<Offset>> committed(std::span<const TopicPartition> of, std::chrono::milliseconds) override {
    std::lock_guard lock(cluster_->mutex);
    const auto& known = cluster_->groups[me_->group].committed;
    std::vector<std::optional<Offset>> offsets;
    for (const auto& at : of) {
      const auto found = known.find(at);
      offsets.push_back(found == known.end() ? std::nullopt : std::optional(found->second));
    }
    return offsets;
  }

  void commit(std::span<const TopicPartitionOffset> offsets, bool) override {
    std::lock_guard lock(cluster_->mutex);
    if (me_->crashed || me_->evicted) return;
    for (const auto& [at, offset] : offsets)
      if (me_->owned.contains(at)) cluster_->groups[me_->group].committed[at] = offset;
    cluster_->changed.notify_all();
  }

  void seek(const TopicPartitionOffset& to) override {
    std::lock_guard lock(cluster_->mutex);
    if (!me_->owned.contains(to.at)) return;
    positions_[to.at] = to.offset;
    me_->rung = true;
  }

  std::optional<std::pair<Offset, Offset>> bounds(const TopicPartition& of, std::chrono::milliseconds) override {
    std::lock_guard lock(cluster_->mutex);
    const auto* partition = cluster_->find(of);
    if (!partition) return std::nullopt;
    return std::pair{partition->first, partition->end};
  }

  void close() override {
    if (std::exchange(closed_, true)) return;
    std::unique_lock lock(cluster_->mutex);
    if (!me_->crashed) give_up(lock);
    me_->subscribed = false;
    cluster_->rebalance(me_->group);
  }

 private:
  void check_topics() const {
    for (const auto& topic : me_->topics) cluster_->topic(topic);
  }

  [[nodiscard]] bool group_wants_me() const {
    if (me_->crashed || !me_->subscribed) return false;
    if (me_->evicted || me_->generation != cluster_->groups[me_->group].generation) return true;
    return !me_->assigned && cluster_->all_joined(me_->group);
  }

  /// Gives up and joins when a rebalance goes on; gets its share when all have joined.
  void serve_group(std::unique_lock<std::mutex>& lock) {
    while (group_wants_me()) {
      if (me_->evicted || me_->generation != cluster_->groups[me_->group].generation) {
        give_up(lock);
        if (std::exchange(me_->evicted, false)) cluster_->rebalance(me_->group);
        me_->generation = cluster_->groups[me_->group].generation;
        me_->assigned = false;
        cluster_->changed.notify_all();
      } else {
        receive(lock);
      }
    }
  }

  void give_up(std::unique_lock<std::mutex>& lock) {
    if (me_->owned.empty()) return;
    const std::vector<TopicPartition> partitions(me_->owned.begin(), me_->owned.end());
    const bool lost = me_->evicted;
    lock.unlock();
    if (listener_) listener_->on_revoked(partitions, lost);
    lock.lock();
    me_->owned.clear();
    positions_.clear();
    me_->rung = true;
  }

  void receive(std::unique_lock<std::mutex>& lock) {
    const auto share = cluster_->share_of(*me_);
    me_->assigned = true;
    me_->rung = true;
    if (share.empty()) return;
    me_->owned = share;
    const std::vector<TopicPartition> partitions(share.begin(), share.end());
    lock.unlock();
    const auto starts = listener_->on_assigned(partitions);
    lock.lock();
    if (me_->crashed) return;
    for (const auto& at : partitions) positions_[at] = start_of(at, starts);
  }

  [[nodiscard]] Offset start_of(const TopicPartition& at, const std::vector<TopicPartitionOffset>& starts) const {
    for (const auto& start : starts)
      if (start.at == at) return start.offset;
    const auto& known = cluster_->groups[me_->group].committed;
    const auto found = known.find(at);
    return found == known.end() ? 0 : found->second;
  }

  std::shared_ptr<MemoryCluster> cluster_;
  std::shared_ptr<MemoryMember> me_;
  AssignmentListener* listener_ = nullptr;
  std::map<TopicPartition, Offset> positions_;  // where the next take() reads; under the cluster's mutex
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<BrokerConsumer> open_memory_consumer(std::shared_ptr<MemoryCluster> cluster, const std::string& group) {
  return std::make_unique<MemoryConsumer>(std::move(cluster), group);
}

}  // namespace turnstile::testing
