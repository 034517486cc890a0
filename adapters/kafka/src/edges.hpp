#pragma once
// Where partitions begin and end, as their leaders tell.

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "client.hpp"
#include "turnstile/types.hpp"

namespace turnstile::kafka {

struct Edge {
  rd_kafka_resp_err_t code = RD_KAFKA_RESP_ERR_NO_ERROR;
  std::int64_t offset = 0;  ///< if there is no error
};

/// `edge` is RD_KAFKA_OFFSET_BEGINNING or RD_KAFKA_OFFSET_END. It does not use rd_kafka_query_watermark_offsets(): in
/// librdkafka 2.0.2 the timeout does not end a request in flight. A broker that hangs would then block the caller until
/// socket.timeout.ms, or for longer (10 minutes were seen).
Edge ask_for_edge(const Client& client, const TopicPartition& of, std::int64_t edge, std::chrono::milliseconds timeout);

/// The same of many partitions, in the order of `of`, with one request for each leader. Partitions whose leader is
/// missing or silent do not keep it from telling of the others (hazard: silent-leader).
std::vector<Edge> ask_for_edges(const Client& client, std::span<const TopicPartition> of, std::int64_t edge,
                                std::chrono::milliseconds timeout);

/// For partitions of which ask_for_edges() told nothing: BrokerConsumer::why_no_end().
std::vector<std::string> why_no_edge(const Client& client, std::span<const TopicPartition> of,
                                     std::chrono::milliseconds timeout);

}  // namespace turnstile::kafka
