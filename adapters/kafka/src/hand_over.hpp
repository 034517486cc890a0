#pragma once

#include "handles.hpp"
#include "turnstile/message.hpp"

namespace turnstile::kafka {

/// Gives a record to librdkafka, with `opaque` for its delivery report. Not copied: its bytes stay where they are until the report has
/// come. Nothing when it was accepted. `flags`: RD_KAFKA_MSG_F_BLOCK, or 0.
KafkaError hand_over(rd_kafka_t* handle, const OwnedMessage& message, void* opaque, int flags);

}  // namespace turnstile::kafka
