#pragma once
// For a poll loop of one's own over librdkafka's C API.

#include "turnstile/message.hpp"

extern "C" {
struct rd_kafka_message_s;
}

namespace turnstile::kafka {

/// A view of a record (`rd_kafka_message_t*`), which must outlive it and must not hold an error (`err` is 0).
/// Message::native() gives the pointer back.
Message view(const rd_kafka_message_s* record);

}  // namespace turnstile::kafka
