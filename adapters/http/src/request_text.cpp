#include "request_text.hpp"

namespace turnstile::http {

namespace {

void append_sized(std::string& to, const std::string& bytes) {
  to.append(std::to_string(bytes.size())).append(1, ':').append(bytes);
}

}  // namespace

std::vector<std::string> header_values(const httplib::Request& request, const std::string& name) {
  std::vector<std::string> values;
  const auto [first, last] = request.headers.equal_range(name);
  for (auto at = first; at != last; ++at) values.push_back(at->second);
  return values;
}

std::string header_value(const httplib::Request& request, const std::string& name) {
  const auto found = request.headers.find(name);
  return found == request.headers.end() ? std::string() : found->second;
}

std::size_t body_bytes(const httplib::Request& request) {
  std::size_t bytes = request.body.size();
  for (const auto& [name, part] : request.files) bytes += part.content.size();
  return bytes;
}

std::string text_of(const httplib::Request& request) {
  std::string text;
  text.reserve(body_bytes(request) + 128);
  text.append(request.method).append(1, '\n').append(request.target).append(1, '\n');
  if (!request.is_multipart_form_data())
    return text.append(header_value(request, "Content-Type")).append(1, '\n').append(request.body);
  text.append("multipart/form-data\n");
  for (const auto& [name, part] : request.files) {
    append_sized(text, part.name);
    append_sized(text, part.filename);
    append_sized(text, part.content_type);
    append_sized(text, part.content);
  }
  return text;
}

}  // namespace turnstile::http
