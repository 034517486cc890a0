#pragma once
// A TopicRunner over the in-memory inbox and broker, and messages that say what is to become of them.

#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delivery/topic_runner.hpp"
#include "tests/support/owned_block.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::test {

using turnstile::testing::MemoryBroker;
using turnstile::testing::MemoryInbox;

inline const std::string kInsert = "INSERT INTO effect VALUES ($1)";
inline const std::string kBadInsert = "INSERT INTO nowhere VALUES ($1)";

/// What a message does when it is handled, up to and including attempt `failures`; afterwards it makes its effect.
enum class Act : std::uint8_t {
  effect,
  deferred_effect,
  fail,
  fail_deferred,
  fail_sql,
  throw_int,
  skip,
  reject,
  retry_after,
  no_id
};

struct Planned {
  int id = 0;
  int key = 0;
  Act act = Act::effect;
  int failures = 0;
};

inline std::ostream& operator<<(std::ostream& out, const Planned& p) {
  return out << "{id " << p.id << " key " << p.key << " act " << static_cast<int>(p.act) << " failures " << p.failures
             << "}";
}

class OneBlock final : public OwnedBlock {
 public:
  explicit OneBlock(const std::vector<Planned>& plan) : OwnedBlock(messages_of(plan)) {}

 private:
  static std::vector<OwnedMessage> messages_of(const std::vector<Planned>& plan) {
    std::vector<OwnedMessage> owned;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.offset = static_cast<Offset>(i);
      message.key = std::to_string(plan[i].key);
      message.payload = std::to_string(i);
      if (plan[i].act != Act::no_id) message.headers = {{"message-id", "id-" + std::to_string(plan[i].id)}};
      owned.push_back(std::move(message));
    }
    return owned;
  }
};

/// Its name is its own: tests/support has a World as well, and one program holds both.
struct RunnerFixture {
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();
  MemoryBroker broker;
  std::unique_ptr<detail::TopicRunner> runner;
  detail::OwnedPartition place;
  detail::TopicRunner::Services services;

  RunnerFixture(TopicSettings settings, Pipeline pipeline) {
    broker.create_topic("t", 1);
    broker.create_topic("t.dlq", 1);
    inbox->fail(kBadInsert, "42P01");
    const TopicPartition at{"t", 0};
    const auto claim = inbox->claim_partitions("g", {&at, 1}, std::chrono::seconds(1)).front();
    place = {at, claim.fence, claim.incarnation};
    settings.mode = Mode::transactional;
    settings.dead_letter = "";
    auto quiet = std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>());
    services.store = inbox;
    services.dead_letters = std::make_shared<detail::DeadLetters>(broker.open_producer(), inbox);
    services.run_log = std::make_shared<detail::RunLog>(quiet, "test");
    runner = std::make_unique<detail::TopicRunner>(detail::plan_topic("t", settings), std::move(pipeline),
                                                   inbox->register_handler("t"), services);
  }
};

}  // namespace turnstile::test
