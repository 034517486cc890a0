#pragma once
// The logger that the framework uses where the program gives none.

#include <memory>

#include "turnstile/config.hpp"

namespace spdlog {
class logger;
}

namespace turnstile {

/// Writes to stderr as `settings` say, one line an event; in format "json" each line is one object. It is not entered in
/// spdlog's registry. Throws ConfigError for a level or format that does not exist.
std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings);

/// The same, for those who may have to log through another one later: redirect() says through which.
std::shared_ptr<spdlog::logger> make_redirectable_logger(const LogSettings& settings);
/// What is logged through `from` goes to `to` from now on; does nothing unless make_redirectable_logger() made `from`. Thread-safe.
void redirect(spdlog::logger& from, std::shared_ptr<spdlog::logger> to);

}  // namespace turnstile
