#pragma once
// Converts PostgreSQL's binary form to values of the framework's types.

#include <libpq-fe.h>

#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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

/// An array of bytea in PostgreSQL's binary form. Absent unless it is well-formed, with one dimension or none.
std::optional<std::vector<std::optional<std::string>>> bytea_array_in(std::string_view bytes);

}  // namespace turnstile::postgres
