#pragma once
// Errors for clients: application/problem+json (RFC 9457).

#include <httplib.h>

#include <chrono>
#include <string_view>

namespace turnstile::http {

/// `detail` tells what to do. It must be Turnstile's own text, without quotes, backslashes and control characters.
void set_problem(httplib::Response& response, int status, std::string_view detail);
/// The same, with the time after which the client may try again.
void set_problem(httplib::Response& response, int status, std::string_view detail, std::chrono::seconds retry_after);

}  // namespace turnstile::http
