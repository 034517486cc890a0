#pragma once

#include "handles.hpp"
#include "turnstile/message.hpp"

namespace turnstile::kafka {

/// Gives a record to librdkafka, with `opaque` for its delivery report. `flags` is RD_KAFKA_MSG_F_BLOCK,
/// RD_KAFKA_MSG_F_COPY, or 0. Without COPY the record's bytes must stay in place until the report arrives. Null if it
/// was accepted.
KafkaError hand_over(rd_kafka_t* handle, const OwnedMessage& message, void* opaque, int flags);

}  // namespace turnstile::kafka
