#pragma once
// The other side of the topic: what publishes the records, and what asks Kafka how far the consumers are. Uses
// librdkafka alone, so that nothing here is counted by the framework that the demo puts to the test.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace demo {

struct Order {
  std::string id;       ///< goes into the header message-id
  std::string account;  ///< the record's key
  std::int32_t partition = 0;
};

/// `published` records, a fifth of them a second copy of an earlier one: half of the copies follow at once in the same
/// partition (a producer that tried again), half come later in another (a request that was sent again).
std::vector<Order> make_orders(int published);

/// How many different ids there are among them.
int distinct_ids(const std::vector<Order>& orders);

class Shop {
 public:
  /// Throws std::runtime_error when librdkafka refuses the settings.
  Shop(const std::string& brokers, std::string topic, const std::string& group);
  ~Shop();
  Shop(const Shop&) = delete;
  Shop& operator=(const Shop&) = delete;

  /// Waits until a produced record comes back acknowledged, which is when a broker is ready; at most 30 s.
  void wait_for_topic();
  /// Returns when the broker has acknowledged all of them. Throws std::runtime_error when it does not within 60 s.
  void publish(std::span<const Order> orders);
  /// Records in the topic that the consumers have not committed yet. Throws std::runtime_error.
  std::int64_t uncommitted();

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
  std::string topic_;
};

}  // namespace demo
