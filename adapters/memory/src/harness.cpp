#include "turnstile/testing/harness.hpp"

#include <map>
#include <stdexcept>

#include "turnstile/config.hpp"

namespace turnstile::testing {

namespace {

constexpr const char* kGroup = "test";

Config config_of(const TopicSettings& topic) {
  Config config;
  config.source = "the harness";
  config.kafka = {{"bootstrap.servers", "memory"}, {"group.id", kGroup}};
  config.postgres.emplace().url = Secret("postgresql://memory");
  config.topics[Harness::kTopic] = topic;
  config.log.level = "off";
  return config;
}

}  // namespace

struct Harness::State {
  std::shared_ptr<MemoryInbox> store = std::make_shared<MemoryInbox>();
  std::shared_ptr<MemoryBroker> broker = std::make_shared<MemoryBroker>(kGroup);
  std::shared_ptr<int> runs = std::make_shared<int>(0);
  std::string dead_letter_topic;
  std::unique_ptr<PollLoop> loop;
  std::map<std::int32_t, Offset> ends;
  std::optional<OwnedMessage> last;

  Settled handle() const { return loop->handle(Message(*last)); }
};

Harness::Harness(Pipeline pipeline, TopicSettings settings) : state_(std::make_unique<State>()) {
  // Outside of everything, including user-defined decorators: it counts the engine's calls.
  pipeline.invoke = [inner = std::move(pipeline.invoke), runs = state_->runs](std::span<const Message> messages,
                                                                              Context& context) {
    ++*runs;
    return inner(messages, context);
  };
  state_->broker->create_topic(kTopic, 64);
  if (const auto dead = dead_letter_name(std::string(kTopic), merge(pipeline.settings, settings))) {
    state_->dead_letter_topic = *dead;
    state_->broker->create_topic(state_->dead_letter_topic);
  }
  Backends backends;
  backends.broker = state_->broker;
  backends.store = state_->store;
  state_->loop = std::make_unique<PollLoop>(config_of(settings), std::move(backends));
  state_->loop->topic(kTopic, std::move(pipeline));
}

Harness::~Harness() = default;

Settled Harness::deliver(const MessageBuilder& message) {
  state_->last = message.record();
  state_->last->topic = kTopic;
  state_->last->offset = state_->ends[state_->last->partition]++;
  return state_->handle();
}

Settled Harness::redeliver() {
  if (!state_->last) throw std::logic_error("Harness::redeliver(): no message was delivered yet");
  return state_->handle();
}

std::vector<OwnedMessage> Harness::dead_letters() const {
  if (state_->dead_letter_topic.empty()) return {};
  return state_->broker->records(state_->dead_letter_topic);
}

int Harness::runs() const noexcept { return *state_->runs; }
MemoryInbox& Harness::store() const noexcept { return *state_->store; }
MemoryBroker& Harness::broker() const noexcept { return *state_->broker; }

}  // namespace turnstile::testing
