#pragma once
// The arguments of handlers' statements as text. For adapters that run these statements.

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "turnstile/error.hpp"
#include "turnstile/transaction.hpp"

namespace turnstile::ports {

/// The argument as PostgreSQL writes it: "1250", "\x00ff", "{1,2}", "2026-11-26 20:00:00.000+00". Absent for NULL.
/// Throws SqlError as check_text() and check_time() do.
[[nodiscard]] std::optional<std::string> param_text(const Param& param);

/// Throws SqlError 22021 if the text has a NUL byte: PostgreSQL's type text cannot store it.
void check_text(std::string_view text);

/// Throws SqlError 22008 unless the time is in the years 1 to 9999. A producer can give its record any timestamp.
void check_time(Timestamp time);

/// Throws the error with the name of the argument that it concerns, as the statement has it: "argument $1: …".
[[noreturn]] void throw_of_param(std::size_t index, const SqlError& error);

/// Calls `use(param)` for each argument of a statement. If it throws SqlError, the error names the argument.
template <class Use>
void each_param(std::span<const Param> params, const Use& use) {
  for (std::size_t i = 0; i < params.size(); ++i) {
    try {
      use(params[i]);
    } catch (const SqlError& error) {
      throw_of_param(i, error);
    }
  }
}

}  // namespace turnstile::ports
