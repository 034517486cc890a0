#include "edges.hpp"

#include <algorithm>
#include <future>
#include <map>

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

/// Throws BrokerError.
ByLeader by_leader(const Client& client, std::span<const TopicPartition> of, Clock::time_point deadline) {
  std::map<std::string, std::vector<std::int32_t>> leaders;
  ByLeader places;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto& [topic, partition] = of[i];
    auto found = leaders.find(topic);
    if (found == leaders.end()) found = leaders.emplace(topic, leaders_of(client, topic, until(deadline))).first;
    const bool exists = partition >= 0 && static_cast<std::size_t>(partition) < found->second.size();
    places[exists ? found->second[static_cast<std::size_t>(partition)] : kNoLeader].push_back(i);
  }
  return places;
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

}  // namespace turnstile::kafka
