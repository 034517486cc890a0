#pragma once
// For your own poll loop over librdkafka's C API.

#include "turnstile/message.hpp"

extern "C" {
struct rd_kafka_message_s;
}

namespace turnstile::kafka {

/// A view of a record (`rd_kafka_message_t*`). The record must outlive the view and must not hold an error (`err` is
/// 0). Message::native() returns the pointer.
Message view(const rd_kafka_message_s* record);

}  // namespace turnstile::kafka
