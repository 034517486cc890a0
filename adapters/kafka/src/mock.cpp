#include "turnstile/kafka/mock.hpp"

#include <librdkafka/rdkafka.h>
// after rdkafka.h, because it does not include it
#include <librdkafka/rdkafka_mock.h>

#include <array>
#include <vector>

#include "errors.hpp"
#include "handles.hpp"

namespace turnstile::kafka {
namespace {

using Handle = std::unique_ptr<rd_kafka_t, FreedBy<rd_kafka_destroy>>;
using Cluster = std::unique_ptr<rd_kafka_mock_cluster_t, FreedBy<rd_kafka_mock_cluster_destroy>>;

constexpr int kBrokerId = 1;
constexpr std::int16_t kProduceApi = 0;
constexpr std::int16_t kJoinGroupApi = 11;

// The cluster belongs to a client, which need not be connected.
Handle new_handle() {
  std::array<char, 512> why{};
  Conf conf{rd_kafka_conf_new()};
  rd_kafka_conf_set_log_cb(conf.get(), [](const rd_kafka_t*, int, const char*, const char*) {});
  Handle handle{rd_kafka_new(RD_KAFKA_PRODUCER, conf.get(), why.data(), why.size())};
  if (!handle) throw BrokerError(Code::unexpected, std::string("the mock broker cannot start: ") + why.data());
  (void)conf.release();
  return handle;
}

}  // namespace

struct MockBroker::State {
  Handle handle = new_handle();
  Cluster cluster{rd_kafka_mock_cluster_new(handle.get(), 1)};

  void refuse(std::int16_t api, rd_kafka_resp_err_t code, std::size_t requests) const {
    const std::vector<rd_kafka_resp_err_t> errors(requests, code);  // each request uses one
    rd_kafka_mock_push_request_errors_array(cluster.get(), api, errors.size(), errors.data());
  }
};

MockBroker::MockBroker() : state_(std::make_unique<State>()) {
  if (!state_->cluster)
    throw BrokerError(Code::unexpected, "the mock broker cannot start: it needs a free port on 127.0.0.1");
}

MockBroker::~MockBroker() = default;

std::string MockBroker::bootstrap_servers() const { return rd_kafka_mock_cluster_bootstraps(state_->cluster.get()); }

// A fetch from the mock waits its full time even if records arrive. A rebalance takes the session less a second
// (hazard: mock-broker).
Settings MockBroker::settings() const {
  return {{"bootstrap.servers", bootstrap_servers()},
          {"fetch.wait.max.ms", "10"},
          {"session.timeout.ms", "2500"},
          {"heartbeat.interval.ms", "200"}};
}

void MockBroker::create_topic(const std::string& name, std::int32_t partitions) {
  if (const auto code = rd_kafka_mock_topic_create(state_->cluster.get(), name.c_str(), partitions, 1))
    throw broker_error(code, "", {bootstrap_servers(), {}, name});
}

void MockBroker::refuse_produce() {
  state_->refuse(kProduceApi, RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED, kManyRequests);
}

void MockBroker::time_out_produce(std::size_t requests) {
  state_->refuse(kProduceApi, RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT, requests);
}

void MockBroker::allow_produce() { rd_kafka_mock_clear_request_errors(state_->cluster.get(), kProduceApi); }

void MockBroker::refuse_members() {
  state_->refuse(kJoinGroupApi, RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED, kManyRequests);
}

void MockBroker::allow_members() { rd_kafka_mock_clear_request_errors(state_->cluster.get(), kJoinGroupApi); }

void MockBroker::down() { rd_kafka_mock_broker_set_down(state_->cluster.get(), kBrokerId); }

void MockBroker::up() { rd_kafka_mock_broker_set_up(state_->cluster.get(), kBrokerId); }

}  // namespace turnstile::kafka
