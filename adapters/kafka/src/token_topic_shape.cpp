#include "token_topic_shape.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <thread>

#include "turnstile/error.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kNextLook{100};
constexpr std::int32_t kEnoughReplicas = 3;

std::string replicas_text(std::int32_t count) { return fmt::format("{} replica{}", count, count == 1 ? "" : "s"); }

/// How to add replicas while members run.
std::string how_to_add(const std::string& topic, std::int32_t replicas, const std::string& servers) {
  std::string ids = "ID";
  for (std::int32_t i = 1; i < replicas; ++i) ids += ",ID";
  return fmt::format(
      "kafka-reassign-partitions.sh --bootstrap-server {} --execute --reassignment-json-file FILE (it loses nothing, "
      "and members may run). FILE has the ids of {} brokers: {{\"version\":1,\"partitions\":[{{\"topic\":\"{}\","
      "\"partition\":0,\"replicas\":[{}]}}]}}",
      servers, replicas, topic, ids);
}

}  // namespace

TopicShape existing_or_created(const std::string& topic, const std::function<TopicShape()>& look,
                               const std::function<void()>& create, milliseconds most) {
  auto found = look();
  if (found.partitions > 0) return found;
  create();
  for (const auto end = steady_clock::now() + most; (found = look()).partitions == 0;) {
    if (steady_clock::now() >= end)
      throw BrokerError(
          Code::kafka_unavailable,
          fmt::format("topic {} is not visible yet: this process or another one has created it, and a broker does not "
                      "know it after {} ms. Start this process again. If that does not help, check that all brokers "
                      "are well",
                      topic, most.count()));
    std::this_thread::sleep_for(kNextLook);
  }
  return found;
}

std::int32_t ReplicaRule::of_new_topic(std::int32_t brokers) const {
  return required_ > 0 ? required_ : std::clamp(brokers, 1, kEnoughReplicas);
}

std::optional<std::string> ReplicaRule::check(const std::string& topic, const TopicShape& found, bool created,
                                              const std::string& servers) const {
  if (required_ > 0) {
    if (found.replicas >= required_) return std::nullopt;
    throw BrokerError(
        Code::token_log_misconfigured,
        fmt::format("topic {} has {}, fewer than the required {} ([limits] replication): the loss of a broker could "
                    "lose the record of permits. Run: {}",
                    topic, replicas_text(found.replicas), required_, how_to_add(topic, required_, servers)));
  }
  // The demand on an existing topic follows the brokers, so that a cluster of one does not warn at each start.
  const std::int32_t enough = created ? kEnoughReplicas : of_new_topic(found.brokers);
  if (found.replicas >= enough) return std::nullopt;
  const std::string why =
      created ? fmt::format("was created with {}, because {} broker{} answered", replicas_text(found.replicas),
                            found.brokers, found.brokers == 1 ? "" : "s")
              : fmt::format("has {}, and {} brokers answer", replicas_text(found.replicas), found.brokers);
  return fmt::format(
      "topic {} {}; {} are recommended. The loss of a broker could lose the record of permits, or stop handlers under "
      "a limit. {}run: {}. If fewer are enough, set [limits] replication to their number",
      topic, why, kEnoughReplicas, created ? "When more brokers are up, " : "To add replicas, ",
      how_to_add(topic, kEnoughReplicas, servers));
}

}  // namespace turnstile::kafka
