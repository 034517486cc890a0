#include "edges.hpp"

#include <algorithm>
#include <future>
#include <map>
#include <optional>
#include <string>

#include "partition_list.hpp"
#include "topics.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

milliseconds until(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<milliseconds>(deadline - Clock::now()), milliseconds{1});
}

struct Answer {
  rd_kafka_resp_err_t code;  ///< of all partitions: then nothing is known
  std::vector<Edge> edges;
};

Answer ask(const Client& client, std::span<const TopicPartition> of, std::int64_t edge, milliseconds timeout) {
  const auto list = list_of(of);
  for (auto& asked : elements(list.get())) asked.offset = edge;
  const auto code = rd_kafka_offsets_for_times(client.handle(), list.get(), ms(timeout));
  Answer answer{code, {}};
  for (const auto& asked : elements(list.get())) answer.edges.push_back({code ? code : asked.err, asked.offset});
  return answer;
}

/// Places in `of`, by the broker that leads the partition now.
using ByLeader = std::map<std::int32_t, std::vector<std::size_t>>;

/// The leaders of partitions. The brokers are asked once for each topic.
class Leaders {
 public:
  Leaders(const Client& client, Clock::time_point deadline) : client_(client), deadline_(deadline) {}

  /// kNoLeader: it has none. Absent: there is no such partition. Throws BrokerError.
  [[nodiscard]] std::optional<std::int32_t> of(const TopicPartition& at) {
    auto found = topics_.find(at.topic);
    if (found == topics_.end())
      found = topics_.emplace(at.topic, leaders_of(client_, at.topic, until(deadline_))).first;
    const auto& leaders = found->second;
    const bool exists = at.partition >= 0 && static_cast<std::size_t>(at.partition) < leaders.size();
    return exists ? std::optional(leaders[static_cast<std::size_t>(at.partition)]) : std::nullopt;
  }

 private:
  const Client& client_;
  const Clock::time_point deadline_;
  std::map<std::string, std::vector<std::int32_t>> topics_;
};

/// Throws BrokerError.
ByLeader by_leader(const Client& client, std::span<const TopicPartition> of, Clock::time_point deadline) {
  Leaders leaders(client, deadline);
  ByLeader places;
  for (std::size_t i = 0; i < of.size(); ++i) places[leaders.of(of[i]).value_or(kNoLeader)].push_back(i);
  return places;
}

/// `failure` is the last one of all connections. librdkafka begins it with the broker: "host:port/3: …".
std::string silent_leader(std::int32_t id, const std::string& failure) {
  const std::string text = "broker " + std::to_string(id) + ", which leads it, does not answer";
  const bool of_it = failure.find("/" + std::to_string(id) + ": ") != std::string::npos;
  return of_it ? text + ": " + failure : text;
}

}  // namespace

Edge ask_for_edge(const Client& client, const TopicPartition& of, std::int64_t edge, milliseconds timeout) {
  return ask(client, {&of, 1}, edge, timeout).edges.front();
}

/// librdkafka asks all leaders at once. But if one of them does not answer, it drops the answers of the others.
std::vector<Edge> ask_for_edges(const Client& client, std::span<const TopicPartition> of, std::int64_t edge,
                                milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  if (of.empty()) return {};
  auto [code, edges] = ask(client, of, edge, of.size() > 1 ? timeout / 2 : timeout);
  if (!code || of.size() == 1) return edges;
  try {
    std::vector<std::pair<std::vector<std::size_t>, std::future<Answer>>> asked;
    for (const auto& [leader, places] : by_leader(client, of, deadline)) {
      if (leader == kNoLeader) continue;
      auto led = std::vector<TopicPartition>();
      for (const std::size_t i : places) led.push_back(of[i]);
      asked.emplace_back(places, std::async(std::launch::async | std::launch::deferred,
                                            [&client, led = std::move(led), edge, deadline] {
                                              return ask(client, led, edge, until(deadline));
                                            }));
    }
    for (auto& [places, answer] : asked) {
      const auto told = answer.get();
      for (std::size_t i = 0; i < places.size(); ++i) edges[places[i]] = told.edges[i];
    }
  } catch (const BrokerError&) {  // no broker answers
  }
  return edges;
}

std::vector<std::string> why_no_edge(const Client& client, std::span<const TopicPartition> of, milliseconds timeout) {
  Leaders leaders(client, Clock::now() + timeout);
  const std::string failure = client.last_failure();
  std::vector<std::string> why;
  for (const TopicPartition& at : of) {
    try {
      const auto leader = leaders.of(at);
      if (!leader) why.emplace_back();
      else if (*leader == kNoLeader) why.emplace_back("it has no leader: no broker with an in-sync replica is up");
      else why.push_back(silent_leader(*leader, failure));
    } catch (const BrokerError&) {
      why.push_back("no broker answers" + (failure.empty() ? failure : ": " + failure));
    }
  }
  return why;
}

}  // namespace turnstile::kafka
