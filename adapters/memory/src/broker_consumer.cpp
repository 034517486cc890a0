#include <algorithm>
#include <utility>

#include "broker_cluster.hpp"
#include "turnstile/error.hpp"

namespace turnstile::testing {
namespace {

using Clock = std::chrono::steady_clock;

class MemoryBlock final : public ports::Block {
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

class MemoryArrivals final : public ports::Arrivals {
 public:
  MemoryArrivals(std::shared_ptr<MemoryCluster> cluster, std::shared_ptr<MemoryMember> member)
      : cluster_(std::move(cluster)), member_(std::move(member)) {}

  bool wait(Clock::time_point until) override {
    std::unique_lock lock(cluster_->mutex);
    ++member_->awaiting;
    const auto have_come = [this] { return member_->listens && member_->arrived; };
    const auto over = [&] { return have_come() || member_->nudges > 0; };
    if (until == Clock::time_point::max()) cluster_->changed.wait(lock, over);
    else cluster_->changed.wait_until(lock, until, over);
    --member_->awaiting;
    if (have_come()) {
      member_->listens = member_->arrived = false;
      return true;
    }
    if (member_->nudges > 0) --member_->nudges;
    return false;
  }
  void listen() noexcept override {
    std::lock_guard lock(cluster_->mutex);
    member_->listens = true;
    cluster_->changed.notify_all();
  }
  void wake(std::size_t threads) noexcept override {
    std::lock_guard lock(cluster_->mutex);
    member_->nudges += threads;
    cluster_->changed.notify_all();
  }

 private:
  std::shared_ptr<MemoryCluster> cluster_;
  std::shared_ptr<MemoryMember> member_;
};

class MemoryConsumer final : public ports::BrokerConsumer {
 public:
  MemoryConsumer(std::shared_ptr<MemoryCluster> cluster, const std::string& group)
      : cluster_(std::move(cluster)),
        me_(std::make_shared<MemoryMember>()),
        arrivals_(std::make_shared<MemoryArrivals>(cluster_, me_)) {
    me_->group = group;
    std::lock_guard lock(cluster_->mutex);
    cluster_->groups.try_emplace(group);
    cluster_->members.push_back(me_);
  }
  ~MemoryConsumer() override {
    if (!closed_) close();
  }

  void subscribe(const std::vector<std::string>& topics, ports::AssignmentListener& listener) override {
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
        check_topics(lock);
        serve_group(lock);
      }
      if (std::exchange(me_->rung, false) || (has_arrivals() && std::exchange(me_->arrived, false))) return;
      if (!cluster_->changed.wait_until(lock, end, [this] { return has_reason(); })) return;
    }
  }

  void wait(std::chrono::milliseconds timeout) override {
    std::unique_lock lock(cluster_->mutex);
    cluster_->changed.wait_for(lock, timeout, [this] { return has_reason(); });
  }

  bool must_poll() override {
    std::lock_guard lock(cluster_->mutex);
    const auto is_changed = [this](const std::string& topic) {
      return cluster_->topics.contains(topic) == missing_.contains(topic);
    };
    return group_wants_me() || std::any_of(me_->topics.begin(), me_->topics.end(), is_changed);
  }

  std::shared_ptr<ports::Arrivals> arrivals() override { return arrivals_; }

  std::unique_ptr<ports::Block> take(const TopicPartition& from, std::size_t most) override {
    std::lock_guard lock(cluster_->mutex);
    auto* partition = cluster_->find(from);
    if (me_->crashed || !partition || !me_->owned.contains(from)) return nullptr;
    auto& position = positions_[from];
    // As auto.offset.reset = earliest does for an offset that the broker does not have.
    const bool was_cut = std::exchange(cuts_[from], partition->cuts) != partition->cuts && position > partition->cut_at;
    if (was_cut || position > partition->end) position = partition->first;
    const auto& all = partition->records;
    const auto begin = std::lower_bound(all.begin(), all.end(), position,
                                        [](const Record& record, Offset offset) { return record->offset < offset; });
    const auto count = std::min<std::size_t>(most, static_cast<std::size_t>(all.end() - begin));
    if (count == 0) return nullptr;
    std::vector<Record> records(begin, begin + static_cast<std::ptrdiff_t>(count));
    position = records.back()->offset + 1;
    partition->taken += static_cast<std::int64_t>(count);
    cluster_->changed.notify_all();
    return std::make_unique<MemoryBlock>(std::move(records));
  }

  // Unlike Kafka's, it must not be called from a signal handler: it takes a lock.
  void wake() noexcept override {
    std::lock_guard lock(cluster_->mutex);
    me_->rung = true;
    cluster_->changed.notify_all();
  }

  std::vector<std::optional<ports::GroupOffset>> committed(std::span<const TopicPartition> of,
                                                           std::chrono::milliseconds) override {
    std::lock_guard lock(cluster_->mutex);
    ++cluster_->lookups;
    const bool refuse = cluster_->refuses_lookups || cluster_->refused_lookups > 0;
    if (cluster_->refused_lookups > 0) --cluster_->refused_lookups;
    if (refuse) throw BrokerError(Code::kafka_unavailable, "the broker does not answer");
    const auto& known = cluster_->groups[me_->group].committed;
    std::vector<std::optional<ports::GroupOffset>> offsets;
    for (const auto& at : of) {
      const auto found = known.find(at);
      offsets.push_back(found == known.end() ? std::nullopt : std::optional(found->second));
    }
    return offsets;
  }

  void commit(std::span<const ports::OffsetCommit> offsets, bool) override {
    std::vector<TopicPartitionOffset> good, refused;
    {
      std::lock_guard lock(cluster_->mutex);
      if (me_->crashed) return;
      const bool refuse = me_->evicted || cluster_->refused_commits > 0;
      if (cluster_->refused_commits > 0) --cluster_->refused_commits;
      for (const auto& offset : offsets) {
        const bool takes = !refuse && me_->owned.contains(offset.at) && cluster_->find(offset.at) != nullptr;
        (takes ? good : refused).push_back({offset.at, offset.offset});
        if (takes) cluster_->groups[me_->group].committed[offset.at] = {offset.offset, offset.metadata};
      }
      cluster_->changed.notify_all();
    }
    if (listener_ && !good.empty()) listener_->on_commit_end(good, true);
    if (listener_ && !refused.empty()) listener_->on_commit_end(refused, false);
  }

  void seek(const TopicPartitionOffset& to) override {
    std::lock_guard lock(cluster_->mutex);
    if (!me_->owned.contains(to.at)) return;
    positions_[to.at] = to.offset;
    me_->rung = true;
  }

  std::vector<std::optional<std::pair<Offset, Offset>>> bounds(std::span<const TopicPartition> of,
                                                               std::chrono::milliseconds) override {
    std::lock_guard lock(cluster_->mutex);
    std::vector<std::optional<std::pair<Offset, Offset>>> bounds;
    for (const auto& at : of) {
      const auto* partition = cluster_->find(at);
      bounds.push_back(partition == nullptr ? std::nullopt
                                            : std::optional(std::pair{partition->first, partition->end}));
    }
    return bounds;
  }

  /// It has no transactions: what is in the log can be read.
  std::vector<std::optional<Offset>> log_ends(std::span<const TopicPartition> of,
                                              std::chrono::milliseconds timeout) override {
    std::vector<std::optional<Offset>> ends;
    for (const auto& known : bounds(of, timeout)) ends.push_back(known ? std::optional(known->second) : std::nullopt);
    return ends;
  }

  std::vector<std::optional<ports::PartitionEnd>> ends(std::span<const TopicPartition> of,
                                                       std::chrono::milliseconds) override {
    std::lock_guard lock(cluster_->mutex);
    std::vector<std::optional<ports::PartitionEnd>> ends;
    for (const auto& at : of) {
      const auto* partition = cluster_->refuses_lookups ? nullptr : cluster_->find(at);
      ends.push_back(partition == nullptr ? std::nullopt
                                          : std::optional(ports::PartitionEnd{partition->end, partition->end}));
    }
    return ends;
  }

  std::vector<std::string> why_no_end(std::span<const TopicPartition> of, std::chrono::milliseconds) override {
    std::lock_guard lock(cluster_->mutex);
    std::vector<std::string> why;
    for (const auto& at : of)
      why.push_back(cluster_->find(at) == nullptr ? "" : "broker 1, which leads it, does not answer");
    return why;
  }

  std::optional<Offset> read_up_to(const TopicPartition& of) override {
    std::lock_guard lock(cluster_->mutex);
    const auto* partition = cluster_->find(of);
    const auto position = positions_.find(of);
    if (!partition || position == positions_.end()) return std::nullopt;
    const auto& all = partition->records;
    if (position->second > partition->end || (!all.empty() && all.back()->offset >= position->second))
      return std::nullopt;
    return partition->end;
  }

  void hurry_when(std::function<bool()>) override {}  // it waits for nothing

  void close() override {
    if (std::exchange(closed_, true)) return;
    std::unique_lock lock(cluster_->mutex);
    if (!me_->crashed) give_up(lock);
    me_->subscribed = false;
    cluster_->rebalance(me_->group);
  }

 private:
  /// A topic that never existed is an error. For a topic that was deleted the consumer waits.
  void check_topics(std::unique_lock<std::mutex>& lock) {
    for (const auto& topic : me_->topics) {
      const bool exists = cluster_->topics.contains(topic);
      if (!exists && !me_->assigned && !missing_.contains(topic)) cluster_->topic(topic);  // throws
      const bool changed = exists ? missing_.erase(topic) > 0 : missing_.insert(topic).second;
      if (!changed) continue;
      me_->rung = true;
      lock.unlock();
      listener_->on_topic_change(topic, exists);
      lock.lock();
    }
  }

  [[nodiscard]] bool has_arrivals() const { return me_->arrived && me_->awaiting == 0; }
  [[nodiscard]] bool has_reason() const { return me_->rung || has_arrivals() || group_wants_me(); }
  [[nodiscard]] bool group_wants_me() const {
    if (me_->crashed || !me_->subscribed) return false;
    if (me_->evicted || me_->generation != cluster_->groups[me_->group].generation) return true;
    return !me_->assigned && cluster_->all_joined(me_->group);
  }

  /// In a rebalance, gives up its partitions and joins. Gets its share when all members have joined.
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
    for (const auto& at : partitions) {
      positions_[at] = start_of(at, starts);
      if (const auto* partition = cluster_->find(at)) cuts_[at] = partition->cuts;
    }
  }

  [[nodiscard]] Offset start_of(const TopicPartition& at, const std::vector<TopicPartitionOffset>& starts) const {
    for (const auto& start : starts)
      if (start.at == at) return start.offset;
    const auto& known = cluster_->groups[me_->group].committed;
    const auto found = known.find(at);
    return found == known.end() ? 0 : found->second.offset;
  }

  std::shared_ptr<MemoryCluster> cluster_;
  std::shared_ptr<MemoryMember> me_;
  std::shared_ptr<MemoryArrivals> arrivals_;
  ports::AssignmentListener* listener_ = nullptr;
  std::map<TopicPartition, Offset> positions_;  // where the next take() reads; the cluster's mutex protects it
  std::map<TopicPartition, int> cuts_;          // cuts of its partitions that it has noticed
  std::set<std::string> missing_;               // subscribed topics that were deleted
  bool closed_ = false;
};

}  // namespace

std::unique_ptr<ports::BrokerConsumer> open_memory_consumer(std::shared_ptr<MemoryCluster> cluster,
                                                            const std::string& group) {
  return std::make_unique<MemoryConsumer>(std::move(cluster), group);
}

}  // namespace turnstile::testing
