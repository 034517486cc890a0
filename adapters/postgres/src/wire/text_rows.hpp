#pragma once
// Reads rows that the server sent as text.

#include <cstdint>
#include <string>

#include "wire/errors.hpp"

namespace turnstile::postgres {

inline std::string text_at(const Result& result, int row, int column) {
  return {PQgetvalue(result.get(), row, column), static_cast<std::size_t>(PQgetlength(result.get(), row, column))};
}

inline std::int64_t number_at(const Result& result, int row, int column) {
  return std::stoll(PQgetvalue(result.get(), row, column));
}

}  // namespace turnstile::postgres
