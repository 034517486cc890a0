#pragma once
// librdkafka's mock broker, in this process: for the demo and for fast tests (hazard: mock-broker). It speaks Kafka's protocol over
// loopback, also to other processes, with consumer groups and committed offsets. It keeps 5 MiB a partition and then drops
// the oldest in silence, keeps nothing on disk, creates whatever topic is produced to, and refuses commits while a rebalance
// goes on (what was handled comes again then). A rebalance takes session.timeout.ms less a second, the first one 3 s.

#include <cstdint>
#include <memory>
#include <string>

#include "turnstile/kafka/broker.hpp"

namespace turnstile::kafka {

/// Librdkafka's mock broker, in this process.
class MockBroker {
 public:
  /// Throws BrokerError when it cannot listen on 127.0.0.1.
  MockBroker();
  ~MockBroker();
  MockBroker(const MockBroker&) = delete;
  MockBroker& operator=(const MockBroker&) = delete;

  /// "127.0.0.1:34567"
  [[nodiscard]] std::string bootstrap_servers() const;
  /// What a client of it should set: its address, short fetch waits, and a session that makes rebalances quick.
  [[nodiscard]] Settings settings() const;
  /// Throws BrokerError when the topic is there already.
  void create_topic(const std::string& name, std::int32_t partitions);
  /// Refuses what is produced from now on, for want of rights, until `allow`.
  void refuse_produce();
  /// Ends the refusal of produced records.
  void allow_produce();
  /// Refuses members of any group for want of rights, until `allow_members`.
  void refuse_members();
  /// Ends the refusal of members.
  void allow_members();
  /// The broker's listener goes away and comes back; what it holds stays.
  void down();
  /// Ends the outage.
  void up();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile::kafka
