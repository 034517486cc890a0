#pragma once
// The other side of the topic: it publishes the records, and asks Kafka for the consumers' progress. It uses librdkafka
// alone, so that the tested framework counts nothing here.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace demo {

struct Order {
  std::string id;       ///< for the header message-id
  std::string account;  ///< the record's key
  std::int32_t partition = 0;
};

/// `published` records, a fifth of which are copies of earlier records. Half of the copies follow at once in the same
/// partition (a producer's retry). The other half come later in another partition (a request that was sent again).
std::vector<Order> make_orders(int published);

/// How many different ids they have.
int distinct_ids(const std::vector<Order>& orders);

class Shop {
 public:
  /// Throws std::runtime_error if librdkafka refuses the settings.
  Shop(const std::string& brokers, std::string topic, const std::string& group);
  ~Shop();
  Shop(const Shop&) = delete;
  Shop& operator=(const Shop&) = delete;

  /// Waits up to 30 s until the broker has acknowledged a record, which shows that it is ready.
  void wait_for_topic();
  /// Returns when the broker has acknowledged all of them. Throws std::runtime_error after 60 s.
  void publish(std::span<const Order> orders);
  /// How many records of the topic the consumers have not committed yet. Throws std::runtime_error.
  std::int64_t uncommitted();

 private:
  struct Handles;
  std::unique_ptr<Handles> handles_;
  std::string topic_;
};

}  // namespace demo
