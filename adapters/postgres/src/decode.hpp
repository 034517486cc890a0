#pragma once
// Values of the framework's types out of PostgreSQL's binary form.

#include <libpq-fe.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/types.hpp"

namespace turnstile::postgres {

inline MessageId id_in(const PGresult* result, int row, int column = 0) {
  MessageId id;
  std::memcpy(id.bytes.data(), PQgetvalue(result, row, column), id.bytes.size());
  return id;
}

inline std::int64_t int64_in(const PGresult* result, int row, int column) {
  std::uint64_t value = 0;
  const auto* bytes = reinterpret_cast<const unsigned char*>(PQgetvalue(result, row, column));
  for (int i = 0; i < 8; ++i) value = value << 8 | bytes[i];
  return static_cast<std::int64_t>(value);
}

/// A view into the result.
inline std::string_view bytes_in(const PGresult* result, int row, int column) {
  return {PQgetvalue(result, row, column), static_cast<std::size_t>(PQgetlength(result, row, column))};
}

/// Reads one array of bytea.
class BinaryReader {
 public:
  explicit BinaryReader(std::string_view bytes) : bytes_(bytes) {}
  /// The header: how many elements follow. One dimension.
  std::size_t array_length() {
    const std::int32_t dimensions = int32();
    bytes_.remove_prefix(8);  // whether any is NULL, and the type
    if (dimensions == 0) return 0;
    const std::int32_t length = int32();
    bytes_.remove_prefix(4);  // the first one's number
    return static_cast<std::size_t>(length);
  }
  std::optional<std::string> element() {
    const std::int32_t length = int32();
    if (length < 0) return std::nullopt;
    std::string element(bytes_.substr(0, static_cast<std::size_t>(length)));
    bytes_.remove_prefix(static_cast<std::size_t>(length));
    return element;
  }

 private:
  std::int32_t int32() {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes_.at(i));
    bytes_.remove_prefix(4);
    return static_cast<std::int32_t>(value);
  }

  std::string_view bytes_;
};

}  // namespace turnstile::postgres
