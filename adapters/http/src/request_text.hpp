#pragma once
// The parts of a request, and the whole request as a text that distinguishes two requests with the same key.

#include <httplib.h>

#include <cstddef>
#include <string>
#include <vector>

namespace turnstile::http {

/// The values of the header, unchanged: httplib's get_header_value() stops at a NUL.
std::vector<std::string> header_values(const httplib::Request& request, const std::string& name);
/// The first value; empty if there is none.
std::string header_value(const httplib::Request& request, const std::string& name);

/// The bytes of the body, or of all parts of a multipart form, which cpp-httplib stores elsewhere.
std::size_t body_bytes(const httplib::Request& request);

/// Method, target, content type and body, each in a line. For a multipart form it has the parts without the boundary,
/// because a browser makes a new boundary each time.
std::string text_of(const httplib::Request& request);

}  // namespace turnstile::http
