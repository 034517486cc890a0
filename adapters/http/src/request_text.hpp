#pragma once
// What a request says; and all of it as one text, by which two requests with one key are told apart.

#include <httplib.h>

#include <cstddef>
#include <string>
#include <vector>

namespace turnstile::http {

/// The values of the header, as they came: httplib's get_header_value() ends at a NUL.
std::vector<std::string> header_values(const httplib::Request& request, const std::string& name);
/// The first of them; empty without any.
std::string header_value(const httplib::Request& request, const std::string& name);

/// Bytes of the body, or of all parts of a multipart form, which cpp-httplib keeps elsewhere.
std::size_t body_bytes(const httplib::Request& request);

/// Method, target, content type and body, a line each. Of a multipart form the parts, without the boundary: a browser makes a new one
/// each time.
std::string text_of(const httplib::Request& request);

}  // namespace turnstile::http
