#pragma once
// Errors as clients read them: application/problem+json (RFC 9457).

#include <httplib.h>

#include <chrono>
#include <string_view>

namespace turnstile::http {

/// `detail` says what to do. It is text of ours, without quotes, backslashes and control characters.
void set_problem(httplib::Response& response, int status, std::string_view detail);
/// The same, and when to come again.
void set_problem(httplib::Response& response, int status, std::string_view detail, std::chrono::seconds retry_after);

}  // namespace turnstile::http
