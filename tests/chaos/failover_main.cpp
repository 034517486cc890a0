// The programs of tests/chaos/failover.py.
//
//   failover load CONFIG TOPIC RATE [numbered]
//     creates the topics TOPIC (4 partitions) and TOPIC.dlq, then publishes RATE messages in a second until SIGTERM:
//     payloads 0, 1, 2, …, with a message-id, or `numbered` by a producer session of CONFIG's database. Every tenth
//     of 50 bursts in a second is published twice. Prints "ready", and at the end {"records": …, "distinct": …}.
//   failover consume CONFIG TOPIC SCHEMA MODE FOLDER [blind | trusting]
//     a consumer in MODE (transactional, by_offset, numbered, leased, rerun). Its effect is a row of SCHEMA.effect in
//     the transaction. In the leased modes it is a line in a file of FOLDER, written before the handler returns. The
//     known-bad builds: `blind` ignores another history of the database, and a lower watermark; `trusting` runs
//     messages in doubt as if they were new.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/forwarding_session.hpp"
#include "tests/support/forwarding_store.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/sender.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

std::atomic<bool> stop{false};

/// Replaces the fence's history with the database's current one, so that no fence is rejected because of it.
Fence shown(Fence fence, ports::Store& store) {
  fence.history = store.history();
  return fence;
}
std::optional<Fence> shown(const std::optional<Fence>& fence, ports::Store& store) {
  return fence ? std::optional(shown(*fence, store)) : std::nullopt;
}

class BlindSession final : public test::ForwardingSession {
 public:
  BlindSession(std::unique_ptr<ports::InboxSession> inner, std::shared_ptr<ports::Store> store)
      : ForwardingSession(std::move(inner)), store_(std::move(store)) {}
  std::vector<ports::Admission> begin(const ports::InboxScope& scope,
                                      std::span<const ports::InboxEntry> entries) override {
    return inner().begin(shown(scope), entries);
  }
  std::vector<ports::Admission> begin_shared(const ports::InboxScope& scope,
                                             std::span<const ports::InboxShare> shares) override {
    std::vector<ports::InboxShare> now(shares.begin(), shares.end());
    for (auto& share : now) share.fence = ::shown(share.fence, *store_);
    return inner().begin_shared(scope, now);
  }
  void announce(const ports::InboxScope& scope, std::span<const ports::InboxEntry> entries) noexcept override {
    try {
      inner().announce(shown(scope), entries);
    } catch (const std::exception&) {
      // It is only a hint.
    }
  }
  std::vector<bool> settled(HandlerId handler, const std::optional<Fence>& fence,
                            std::span<const MessageId> ids) override {
    return inner().settled(handler, ::shown(fence, *store_), ids);
  }

 private:
  [[nodiscard]] ports::InboxScope shown(ports::InboxScope scope) const {
    scope.fence = ::shown(scope.fence, *store_);
    return scope;
  }
  std::shared_ptr<ports::Store> store_;
};

class BlindTrials final : public ports::Trials {
 public:
  explicit BlindTrials(std::shared_ptr<ports::Store> store) : inner_(store->trials()), store_(std::move(store)) {}
  std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
    return inner_->take_over(shown(fence, *store_), first);
  }
  void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
    inner_->begin(shown(fence, *store_), offsets, alone);
  }
  void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) override {
    inner_->end(shown(fence, *store_), offsets, settled);
  }
  void release(std::span<const Release> partitions) override {
    std::vector<Release> now(partitions.begin(), partitions.end());
    for (Release& release : now) release.fence = shown(release.fence, *store_);
    inner_->release(now);
  }

 private:
  std::shared_ptr<ports::Trials> inner_;
  std::shared_ptr<ports::Store> store_;
};

class BlindStore final : public test::ForwardingStore {
 public:
  explicit BlindStore(const std::shared_ptr<ports::Store>& inner) : ForwardingStore(inner), store_(inner) {}
  std::unique_ptr<ports::InboxSession> open_session() override {
    return std::make_unique<BlindSession>(store_->open_session(), store_);
  }
  std::shared_ptr<ports::Trials> trials() override { return std::make_shared<BlindTrials>(store_); }
  std::int64_t history() override { return 1; }
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    auto claims = store_->partitions().claim_partitions(group, partitions, wait);
    for (ports::PartitionClaim& claim : claims) claim.fence.history = 1;
    return claims;
  }
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override {
    std::vector<ports::WatermarkUpdate> now(updates.begin(), updates.end());
    for (ports::WatermarkUpdate& update : now) {
      update.fence = shown(update.fence, *store_);
      update.known.reset();
    }
    return store_->partitions().advance_watermarks(now);
  }
  std::int32_t begin_incarnation(const Fence& fence, Offset first, std::int32_t at_least) override {
    return store_->partitions().begin_incarnation(shown(fence, *store_), first, at_least);
  }
  bool record_dead(const ports::DeadMessage& message) override {
    ports::DeadMessage now = message;
    now.fence = shown(message.fence, *store_);
    return store_->dead_letters().record_dead(now);
  }
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override {
    return store_->dead_letters().dead_between(handler, shown(fence, *store_), first, last, reason);
  }

 private:
  std::shared_ptr<ports::Store> store_;
};

class TrustingClaims final : public ports::Claims {
 public:
  explicit TrustingClaims(std::shared_ptr<ports::Claims> inner) : inner_(std::move(inner)) {}
  std::vector<ports::Claim> claim(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries) override {
    std::vector<ports::InboxEntry> trusted(entries.begin(), entries.end());
    for (ports::InboxEntry& entry : trusted) entry.in_doubt = false;
    return inner_->claim(scope, trusted);
  }
  std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const ports::HeldClaim> held) override {
    return inner_->begin(handler, owner, held);
  }
  std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends) override {
    return inner_->end(handler, owner, ends);
  }
  std::vector<bool> renew(HandlerId handler, const MessageId& owner, std::chrono::milliseconds lease,
                          std::span<const ports::HeldClaim> held) override {
    return inner_->renew(handler, owner, lease, held);
  }
  ports::ClaimCounts count(std::optional<HandlerId> handler) override { return inner_->count(handler); }

 private:
  std::shared_ptr<ports::Claims> inner_;
};

class TrustingStore final : public test::ForwardingStore {
 public:
  explicit TrustingStore(const std::shared_ptr<ports::Store>& inner) : ForwardingStore(inner), store_(inner) {}
  std::shared_ptr<ports::Claims> claims() override { return std::make_shared<TrustingClaims>(store_->claims()); }

 private:
  std::shared_ptr<ports::Store> store_;
};

OwnedMessage message_of(const std::string& topic, std::int64_t number) {
  OwnedMessage message;
  message.topic = topic;
  message.partition = -1;
  message.key = std::to_string(number % 100);
  message.payload = std::to_string(number);
  message.headers = {{"message-id", std::to_string(number)}};
  return message;
}

int load(const Config& config, const std::string& topic, int rate, bool numbered) {
  const Backends backends = connect(config);
  const kafka::Settings settings{{"bootstrap.servers", config.kafka.at("bootstrap.servers")}};
  kafka::create_topic(settings, {topic, 4, -1, {}});
  kafka::create_topic(settings, {topic + ".dlq", 1, -1, {}});
  std::signal(SIGTERM, [](int) { stop = true; });
  std::unique_ptr<NumberedSender> numbering;
  std::unique_ptr<ports::BrokerSender> plain;
  if (numbered) {
    numbering = std::make_unique<NumberedSender>(
        *backends.broker, backends.store->producers(),
        NumberedSender::Options{.name = "load", .acknowledge = NumberedSender::Acknowledge::by_hand});
  } else {
    plain = backends.broker->open_sender();
  }
  std::cout << "ready" << std::endl;
  std::int64_t distinct = 0, records = 0;
  const auto send = [&](const std::vector<OwnedMessage>& messages) {
    ports::BrokerSender& sender = numbering ? static_cast<ports::BrokerSender&>(*numbering) : *plain;
    for (const auto& fate : sender.send(messages)) {
      if (fate.kind != ports::BrokerSender::Fate::Kind::sent) throw Error(Code::kafka_refused, "not sent: " + fate.why);
    }
    records += static_cast<std::int64_t>(messages.size());
  };
  const auto began = std::chrono::steady_clock::now();
  const int burst = std::max(1, rate / 50);
  for (std::int64_t round = 0; !stop; ++round) {
    std::this_thread::sleep_until(began + round * 1'000'000us * burst / rate);
    std::vector<OwnedMessage> messages;
    std::vector<NumberedSender::Stamped> stamped;
    for (int i = 0; i < burst; ++i) {
      OwnedMessage message = message_of(topic, distinct++);
      if (numbering) message = stamped.emplace_back(numbering->stamp(std::move(message))).message;
      messages.push_back(std::move(message));
    }
    send(messages);
    if (round % 10 == 0) send(messages);
    for (const auto& one : stamped) numbering->acknowledge(one);
  }
  std::cout << "{\"records\": " << records << ", \"distinct\": " << distinct << "}" << std::endl;
  return 0;
}

Pipeline in_mode(Pipeline pipeline, const std::string& mode) {
  if (mode == "transactional") return std::move(pipeline) | transactional() | ordered_by(Order::key);
  if (mode == "by_offset") return std::move(pipeline) | by_offset();
  if (mode == "numbered") return std::move(pipeline) | numbered();
  if (mode == "leased") return std::move(pipeline) | leased(10s) | ordered_by(Order::key);
  if (mode == "rerun") return std::move(pipeline) | leased(10s) | on_unknown(UnknownPolicy::rerun);
  throw Error(Code::usage, "no mode " + mode);
}

int consume(const Config& config, const std::string& topic, const std::string& schema, const std::string& mode,
            const std::string& folder, const std::string& bad) {
  Backends backends = connect(config);
  if (bad == "blind") backends.store = std::make_shared<BlindStore>(backends.store);
  if (bad == "trusting") backends.store = std::make_shared<TrustingStore>(backends.store);
  const std::string file = folder + "/" + topic + "-" + std::to_string(::getpid()) + ".effects";
  const int effects = ::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  const std::string insert =
      "INSERT INTO " + schema + ".effect (id, record_partition, record_offset) VALUES ($1, $2, $3)";
  const bool elsewhere = mode == "leased" || mode == "rerun";
  Consumer app(config, backends);
  app.topic(topic, in_mode(Pipeline([&](const Message& message, Context& context) {
                             std::this_thread::sleep_for(500us);
                             if (!elsewhere) {
                               context.tx().exec(insert, std::string(message.text()), message.partition(),
                                                 message.offset());
                               return;
                             }
                             const std::string line = std::string(message.text()) + "\n";
                             if (::write(effects, line.data(), line.size()) < 0)
                               throw std::runtime_error("the effect cannot be written");
                           }),
                           mode) |
                       retry(exponential{20ms, 5}) | dead_letter());
  app.run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string verb = argc > 1 ? argv[1] : "";
  try {
    if (verb == "load" && argc >= 5) return load(Config::load(argv[2]), argv[3], std::stoi(argv[4]), argc > 5);
    if (verb == "consume" && argc >= 7)
      return consume(Config::load(argv[2]), argv[3], argv[4], argv[5], argv[6], argc > 7 ? argv[7] : "");
  } catch (const std::exception& e) {
    std::cerr << "failover " << verb << ": " << e.what() << '\n';
    return 1;
  }
  std::cerr << "usage: at the top of tests/chaos/failover_main.cpp\n";
  return 2;
}
