#pragma once
// Log lines with fields. Fields never contain ids, keys and payloads.

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "turnstile/code.hpp"
#include "turnstile/config.hpp"
#include "turnstile/log.hpp"
#include "turnstile/types.hpp"

namespace turnstile::detail {

/// What happened, and where. A field that is empty is left out of the line. A line at warn or above has a code.
struct LogFields {
  std::optional<Code> code{};
  std::string_view topic{};
  std::optional<std::int32_t> partition{};
  std::optional<Offset> offset{};
  std::string_view handler{};
  std::string_view member{};
  std::string_view trace_id{};
};

/// The logger of turnstile/log.hpp, with another sink.
std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings, spdlog::sink_ptr sink);

/// Logs one line: control characters in `message` are escaped. A JSON logger of make_logger() gets the fields as
/// fields. Any other logger gets them after the message:
/// `dead-lettered code=dead_lettered topic=payments partition=3 offset=1042`.
void log(spdlog::logger& logger, spdlog::level::level_enum level, std::string_view message,
         const LogFields& fields = {});

}  // namespace turnstile::detail
