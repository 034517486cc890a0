#pragma once
// A TopicRunner over the in-memory inbox and broker, and messages that say what is to become of them.

#include <rapidcheck.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "delivery/topic_runner.hpp"
#include "engine/lane.hpp"
#include "tests/support/owned_block.hpp"
#include "turnstile/context.hpp"
#include "turnstile/outcome.hpp"
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

/// A handler that acts as planned. Its effect has this name.
inline Outcome act_on(const Planned& planned, std::string_view effect, Context& context) {
  const bool fails = context.attempt() <= planned.failures;
  switch (planned.act) {
    case Act::fail:
      if (fails) throw std::runtime_error("told to fail");
      break;
    case Act::throw_int:
      if (fails) throw 7;
      break;
    case Act::fail_sql:
      if (fails) context.tx().exec(kBadInsert, effect);
      break;
    case Act::fail_deferred:
      if (fails) {
        context.defer(kBadInsert, effect);
        return Outcome::done();
      }
      break;
    case Act::retry_after:
      if (fails) return Outcome::retry_after(std::chrono::milliseconds(1));
      break;
    case Act::skip: return Outcome::skip();
    case Act::reject: return Outcome::dead_letter("told to reject");
    case Act::deferred_effect: context.defer(kInsert, effect); return Outcome::done();
    case Act::effect:
    case Act::no_id: break;
  }
  context.tx().exec(kInsert, effect);
  return Outcome::done();
}

/// Acts that rarely fail.
inline rc::Gen<Act> any_act(std::size_t effects, std::size_t deferred_effects) {
  return rc::gen::weightedElement<Act>({{effects, Act::effect},
                                        {deferred_effects, Act::deferred_effect},
                                        {1, Act::fail},
                                        {1, Act::fail_deferred},
                                        {1, Act::fail_sql},
                                        {1, Act::throw_int},
                                        {1, Act::skip},
                                        {1, Act::reject},
                                        {1, Act::retry_after},
                                        {1, Act::no_id}});
}

/// A handler that acts on each message; with `spans` it takes spans, up to the first message that it does not settle.
template <typename ActOn>
Pipeline acting(ActOn act, bool spans) {
  if (!spans) return act;
  return [act](std::span<const Message> messages, Context& context) {
    Outcome last = Outcome::done();
    for (const Message& message : messages) {
      last = act(message, context);
      if (!last.settles()) return last;
    }
    return last;
  };
}

/// What the scheduler does with a verdict.
inline void follow(const detail::Verdict& verdict, const detail::Work& work, detail::Lane& lane,
                   detail::SteadyTime now) {
  using Kind = detail::Verdict::Kind;
  if (verdict.kind == Kind::settled) lane.settle(work);
  else if (verdict.kind == Kind::retry) lane.retry(work, now + verdict.delay, verdict.attempt);
  else lane.put_back(work);
}

class OneBlock final : public OwnedBlock {
 public:
  explicit OneBlock(const std::vector<Planned>& plan, std::int32_t partition = 0)
      : OwnedBlock(messages_of(plan, partition)) {}

 private:
  static std::vector<OwnedMessage> messages_of(const std::vector<Planned>& plan, std::int32_t partition) {
    std::vector<OwnedMessage> owned;
    for (std::size_t i = 0; i < plan.size(); ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = partition;
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
    place = claim(0);
    settings.mode = Mode::transactional;
    settings.dead_letter = "";
    auto quiet = std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>());
    services.store = inbox;
    services.dead_letters = std::make_shared<detail::DeadLetters>(broker.open_producer(), inbox);
    services.run_log = std::make_shared<detail::RunLog>(quiet, "test");
    runner = std::make_unique<detail::TopicRunner>(detail::plan_topic("t", settings), std::move(pipeline),
                                                   inbox->register_handler("t"), services);
  }
  /// Takes the partition from its last owner.
  [[nodiscard]] detail::OwnedPartition claim(std::int32_t partition) const {
    const TopicPartition at{"t", partition};
    const auto claim = inbox->claim_partitions("g", {&at, 1}, std::chrono::seconds(1)).front();
    return {at, claim.fence, claim.incarnation};
  }
};

}  // namespace turnstile::test
