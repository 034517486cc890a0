#include "shop.hpp"

#include <fmt/format.h>
#include <librdkafka/rdkafka.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "board.hpp"

namespace demo {
namespace {

constexpr int kCopiesOneIn = 5;
constexpr int kLaterBy = 200;
constexpr int kAccounts = 500;

Order make_order(int number) {
  const int account = (number * 37) % kAccounts;
  return {fmt::format("order-{:06}", number), fmt::format("account-{:03}", account), account % kPartitions};
}

/// Calls librdkafka's factory, and turns its error into an exception.
rd_kafka_t* open_client(rd_kafka_type_t type, const std::vector<std::pair<std::string, std::string>>& settings,
                        void (*on_delivery)(rd_kafka_t*, const rd_kafka_message_t*, void*), void* opaque) {
  char error[512] = "";
  rd_kafka_conf_t* conf = rd_kafka_conf_new();
  for (const auto& [name, value] : settings) {
    if (rd_kafka_conf_set(conf, name.c_str(), value.c_str(), error, sizeof error) != RD_KAFKA_CONF_OK) {
      rd_kafka_conf_destroy(conf);
      throw std::runtime_error(error);
    }
  }
  if (on_delivery != nullptr) rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
  rd_kafka_conf_set_opaque(conf, opaque);
  rd_kafka_t* client = rd_kafka_new(type, conf, error, sizeof error);
  if (client == nullptr) {
    rd_kafka_conf_destroy(conf);
    throw std::runtime_error(error);
  }
  return client;
}

}  // namespace

std::vector<Order> make_orders(int published) {
  std::vector<Order> orders;
  std::deque<std::pair<std::size_t, Order>> later;  // the length of `orders` at which a copy is due
  const auto total = static_cast<std::size_t>(published);
  const std::size_t copies = total / kCopiesOneIn;
  std::size_t made = 0;
  for (int number = 1; orders.size() < total; ++number) {
    orders.push_back(make_order(number));
    const bool copied = number % (kCopiesOneIn - 1) == 0 && made < copies;
    if (copied && ++made % 2 == 1) {
      orders.push_back(orders.back());
    } else if (copied) {
      Order copy = orders.back();
      copy.partition = (copy.partition + 1) % kPartitions;
      later.emplace_back(orders.size() + kLaterBy, std::move(copy));
    }
    while (!later.empty() && (later.front().first <= orders.size() || orders.size() + later.size() >= total)) {
      orders.push_back(std::move(later.front().second));
      later.pop_front();
    }
  }
  orders.resize(total);
  return orders;
}

int distinct_ids(const std::vector<Order>& orders) {
  std::unordered_set<std::string> ids;
  for (const Order& order : orders) ids.insert(order.id);
  return static_cast<int>(ids.size());
}

struct Shop::Handles {
  rd_kafka_t* producer = nullptr;
  /// It never subscribes. It asks for the group's committed offsets.
  rd_kafka_t* auditor = nullptr;
  std::atomic<std::int64_t> acknowledged{0};
  std::atomic<std::int64_t> refused{0};

  ~Handles() {
    if (producer != nullptr) rd_kafka_destroy(producer);
    if (auditor != nullptr) rd_kafka_destroy(auditor);
  }
  static void on_delivery(rd_kafka_t*, const rd_kafka_message_t* message, void* opaque) {
    auto* self = static_cast<Handles*>(opaque);
    ++(message->err == RD_KAFKA_RESP_ERR_NO_ERROR ? self->acknowledged : self->refused);
  }
};

Shop::Shop(const std::string& brokers, std::string topic, const std::string& group)
    : handles_(std::make_unique<Handles>()), topic_(std::move(topic)) {
  handles_->producer = open_client(RD_KAFKA_PRODUCER,
                                   {{"bootstrap.servers", brokers},
                                    {"acks", "all"},
                                    {"linger.ms", "5"},
                                    {"message.timeout.ms", "30000"},
                                    {"log_level", "2"}},
                                   &Handles::on_delivery, handles_.get());
  handles_->auditor = open_client(
      RD_KAFKA_CONSUMER, {{"bootstrap.servers", brokers}, {"group.id", group}, {"log_level", "2"}}, nullptr, nullptr);
}

Shop::~Shop() = default;

void Shop::wait_for_topic() {
  const rd_kafka_metadata_t* metadata = nullptr;
  rd_kafka_topic_t* topic = rd_kafka_topic_new(handles_->producer, topic_.c_str(), nullptr);
  int found = 0;
  rd_kafka_resp_err_t error = RD_KAFKA_RESP_ERR_NO_ERROR;
  // A new topic needs a moment to get its leaders.
  for (int look = 0; look < 300 && found != kPartitions; ++look) {
    error = rd_kafka_metadata(handles_->producer, 0, topic, &metadata, 5'000);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR) break;
    found = metadata->topic_cnt == 1 ? metadata->topics[0].partition_cnt : 0;
    rd_kafka_metadata_destroy(metadata);
    if (found != kPartitions) rd_kafka_poll(handles_->producer, 100);
  }
  rd_kafka_topic_destroy(topic);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
    throw std::runtime_error(fmt::format("Kafka does not answer: {}", rd_kafka_err2str(error)));
  if (found != kPartitions)
    throw std::runtime_error(fmt::format("topic {} has {} partitions, not {}", topic_, found, kPartitions));
}

void Shop::publish(std::span<const Order> orders) {
  const std::int64_t before = handles_->acknowledged;
  for (const Order& order : orders) {
    const std::string payload = fmt::format(R"({{"order":"{}","account":"{}"}})", order.id, order.account);
    rd_kafka_resp_err_t error{};
    do {
      error = rd_kafka_producev(handles_->producer, RD_KAFKA_V_TOPIC(topic_.c_str()),
                                RD_KAFKA_V_PARTITION(order.partition), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                RD_KAFKA_V_KEY(order.account.data(), order.account.size()),
                                RD_KAFKA_V_VALUE(const_cast<char*>(payload.data()), payload.size()),
                                RD_KAFKA_V_HEADER("message-id", order.id.data(), order.id.size()), RD_KAFKA_V_END);
      rd_kafka_poll(handles_->producer, error == RD_KAFKA_RESP_ERR__QUEUE_FULL ? 100 : 0);
    } while (error == RD_KAFKA_RESP_ERR__QUEUE_FULL);
    if (error != RD_KAFKA_RESP_ERR_NO_ERROR)
      throw std::runtime_error(fmt::format("publish: {}", rd_kafka_err2str(error)));
  }
  rd_kafka_flush(handles_->producer, 60'000);
  const std::int64_t acknowledged = handles_->acknowledged - before;
  if (acknowledged != static_cast<std::int64_t>(orders.size())) {
    throw std::runtime_error(fmt::format("Kafka acknowledged {} of {} records", acknowledged, orders.size()));
  }
}

std::int64_t Shop::uncommitted() {
  using List = std::unique_ptr<rd_kafka_topic_partition_list_t, decltype(&rd_kafka_topic_partition_list_destroy)>;
  const List list{rd_kafka_topic_partition_list_new(kPartitions), &rd_kafka_topic_partition_list_destroy};
  for (int p = 0; p < kPartitions; ++p) rd_kafka_topic_partition_list_add(list.get(), topic_.c_str(), p);
  auto error = rd_kafka_committed(handles_->auditor, list.get(), 10'000);
  std::int64_t left = 0;
  for (int p = 0; p < kPartitions && error == RD_KAFKA_RESP_ERR_NO_ERROR; ++p) {
    std::int64_t low = 0;
    std::int64_t high = 0;
    error = rd_kafka_query_watermark_offsets(handles_->auditor, topic_.c_str(), p, &low, &high, 10'000);
    left += high - std::max(low, list->elems[p].offset);
  }
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) {
    throw std::runtime_error(fmt::format("asking for the committed offsets: {}", rd_kafka_err2str(error)));
  }
  return left;
}

}  // namespace demo
