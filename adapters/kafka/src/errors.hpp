#pragma once
// librdkafka's error codes as sentences that tell what to do.

#include <librdkafka/rdkafka.h>

#include <string>
#include <string_view>

#include "turnstile/error.hpp"

namespace turnstile::kafka {

/// The place of an error. Unknown fields are empty.
struct Where {
  std::string_view broker;  ///< bootstrap.servers
  std::string_view group;
  std::string_view topic;
  /// No broker has ever answered this client, and no setting of it asks for TLS or SASL.
  bool plaintext_unanswered = false;
};

/// The error does not end by itself: rights, credentials, a fatal state of the client.
bool for_good(rd_kafka_resp_err_t code) noexcept;
/// The broker knows no such topic or partition: it was deleted, or never existed.
bool knows_no_topic(rd_kafka_resp_err_t code) noexcept;
/// Another member owns the partition, or the membership has ended: normal around rebalances
/// (hazard: revoked-partition).
bool no_longer_ours(rd_kafka_resp_err_t code) noexcept;
/// "kafka 127.0.0.1:9092: topic payments: Broker: Topic authorization failed. Grant …"
std::string explain(rd_kafka_resp_err_t code, std::string_view detail, const Where& where);
BrokerError broker_error(rd_kafka_resp_err_t code, std::string_view detail, const Where& where);

}  // namespace turnstile::kafka
