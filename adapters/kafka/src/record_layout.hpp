#pragma once
// What the bytes around a fetched record tell. librdkafka does not copy records: their keys and payloads are views into
// the broker's response, or into what it was decompressed to. Kafka's protocol fixes what is there. Pure.

#include <cstddef>

namespace turnstile::kafka {

/// Whether a librdkafka of this version leaves records where they were received, as its sources say: 2.0.2 and 2.8.0
/// were read. No other line of versions is trusted.
bool leaves_records_in_place(int version) noexcept;

/// Whether such a record certainly has no headers. librdkafka takes 0.13 µs to say so. False if it has some, or if the
/// bytes do not tell: no or an empty payload, or a record format before 2.
bool certainly_without_headers(const void* payload, std::size_t size) noexcept;

}  // namespace turnstile::kafka
