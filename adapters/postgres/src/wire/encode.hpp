#pragma once
// Converts arrays of the framework's types to PostgreSQL's binary form.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"
#include "wire/arguments.hpp"

namespace turnstile::postgres {

/// `id_at(i)` returns the i-th of `count` ids.
template <class IdAt>
void add_uuid_array(ArgumentBlock& to, std::size_t count, IdAt id_at) {
  BinaryWriter out(to.add_binary(kUuidArray, BinaryWriter::kArrayHeader + 20 * count));
  out.array_header(kUuid, count);
  for (std::size_t i = 0; i < count; ++i) {
    out.int32(16);
    out.bytes(id_at(i).bytes.data(), 16);
  }
}

inline void add_uuid(ArgumentBlock& to, const MessageId& id) {
  BinaryWriter(to.add_binary(kUuid, 16)).bytes(id.bytes.data(), 16);
}

/// `number_at(i)` returns the i-th of `count` numbers, absent for NULL.
template <class NumberAt>
void add_int8_array(ArgumentBlock& to, std::size_t count, NumberAt number_at) {
  std::size_t present = 0;
  for (std::size_t i = 0; i < count; ++i) present += number_at(i) ? 1 : 0;
  BinaryWriter out(to.add_binary(kInt8Array, BinaryWriter::kArrayHeader + 4 * count + 8 * present));
  out.array_header(kInt8, count, present != count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<std::int64_t> number = number_at(i);
    out.int32(number ? 8 : -1);
    if (number) out.int64(*number);
  }
}

/// `bytes_at(i)` returns the i-th of `count` texts as std::optional<std::string_view>, absent for NULL.
template <class BytesAt>
void add_bytea_array(ArgumentBlock& to, std::size_t count, BytesAt bytes_at) {
  std::size_t size = BinaryWriter::kArrayHeader + 4 * count;
  bool with_null = false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<std::string_view> bytes = bytes_at(i);
    if (bytes) size += bytes->size();
    else with_null = true;
  }
  BinaryWriter out(to.add_binary(kByteaArray, size));
  out.array_header(kBytea, count, with_null);
  for (std::size_t i = 0; i < count; ++i) {
    const std::optional<std::string_view> bytes = bytes_at(i);
    out.int32(bytes ? static_cast<std::int32_t>(bytes->size()) : -1);
    if (bytes) out.bytes(bytes->data(), bytes->size());
  }
}

/// `us`: microseconds since 1970. PostgreSQL counts from 2000.
constexpr std::int64_t time_on_wire(std::int64_t us) noexcept { return us - 946'684'800'000'000; }
/// `time` is in the years 1 to 9999.
constexpr std::int64_t time_on_wire(Timestamp time) noexcept {
  return time_on_wire(time.time_since_epoch().count() * 1000);
}

/// `us`: microseconds since 1970.
inline void add_timestamptz(ArgumentBlock& to, std::int64_t us) {
  BinaryWriter(to.add_binary(kTimestamptz, 8)).int64(time_on_wire(us));
}

/// The epoch, and the history as a time; both NULL without a partition.
inline void add_epoch(ArgumentBlock& to, const std::optional<Fence>& fence) {
  if (fence) {
    to.add_int(fence->epoch.value);
    add_timestamptz(to, fence->history);
  } else {
    to.add_null(0);
    to.add_null(kTimestamptz);
  }
}

inline void add_bytea(ArgumentBlock& to, const std::optional<std::string>& bytes) {
  if (!bytes) return to.add_null(kBytea);
  BinaryWriter(to.add_binary(kBytea, bytes->size())).bytes(bytes->data(), bytes->size());
}

/// A record's timestamp, in milliseconds since 1970. Absent if the record has none, or if PostgreSQL could not store it.
/// A producer may send any number, and a refused statement would stop the partition.
/// A timestamptz begins in 4713 BC. An interval is multiplied as a double, which is exact up to 2^53 (the year 287396).
inline std::optional<std::int64_t> record_time(Timestamp time) {
  constexpr Timestamp kFirst{std::chrono::milliseconds(-210'866'803'200'000)};
  constexpr Timestamp kLast{std::chrono::milliseconds(std::int64_t{1} << 53)};
  if (time == Timestamp{} || time < kFirst || time > kLast) return std::nullopt;
  return time.time_since_epoch().count();
}

/// NULL for an absent record_time().
inline void add_record_time(ArgumentBlock& to, Timestamp time) {
  if (const auto ms = record_time(time)) to.add_int(*ms);
  else to.add_null(0);
}

}  // namespace turnstile::postgres
