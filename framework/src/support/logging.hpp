#pragma once
// Log lines with fields. Ids, keys and payloads are never among them.

#include <spdlog/logger.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "turnstile/config.hpp"
#include "turnstile/types.hpp"

namespace turnstile {

/// Where something happened. What is empty is left out of the line.
struct LogFields {
  std::string_view topic{};
  std::optional<std::int32_t> partition{};
  std::optional<Offset> offset{};
  std::string_view handler{};
  std::string_view member{};
};

/// Writes to stderr as `settings` say. In format "json" each line is one object: time (UTC), level, message, and those
/// of LogFields that are known. Not entered in spdlog's registry, so that it cannot clash with the program's own.
/// Throws ConfigError for a level or format that does not exist.
std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings);
/// The same into another sink.
std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings, spdlog::sink_ptr sink);

/// One line, always: control characters in `message` are escaped. A logger that make_logger() made in JSON gets the
/// fields as fields, any other gets them behind the message: `dead-lettered topic=payments partition=3 offset=1042`.
void log(spdlog::logger& logger, spdlog::level::level_enum level, std::string_view message,
         const LogFields& fields = {});

}  // namespace turnstile
