#pragma once
// The framework's logger, for programs that set none.

#include <memory>
#include <string_view>

#include "turnstile/code.hpp"
#include "turnstile/config.hpp"

namespace spdlog {
class logger;
}

namespace turnstile {

/// A logger to stderr, as `settings` configure it, with one line for each event. In format "json" each line is a JSON
/// object. It is not in spdlog's registry. Throws ConfigError for an unknown level or format.
std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings);

/// The same logger, but redirect() can send its lines to another logger later.
std::shared_ptr<spdlog::logger> make_redirectable_logger(const LogSettings& settings);
/// From now on `to` gets the lines that are logged through `from`. Does nothing unless make_redirectable_logger() made
/// `from`. Thread-safe.
void redirect(spdlog::logger& from, std::shared_ptr<spdlog::logger> to);

/// Writes a line at level warn, with its code: `TEXT code=store_busy`; in JSON the field "code". For adapters: every
/// line at warn or above must have a code.
void log_warning(spdlog::logger& logger, Code code, std::string_view text);
/// A line at error, with its code.
void log_error(spdlog::logger& logger, Code code, std::string_view text);

}  // namespace turnstile
