#pragma once
// A response in the form that is stored with the id of its request.

#include <httplib.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace turnstile::http {

struct Kept {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;  ///< in the order in which they are added
  std::string body;
  bool operator==(const Kept&) const = default;
};

/// Takes the response that an effect has made. Absent if a content provider makes the body, because it does not exist
/// yet.
std::optional<Kept> taken_from(httplib::Response&& made);

/// The stored form, so it must not change. All parts are netstrings (the length in decimal, a colon, the bytes, a
/// comma):
///   "H1", the status, name and value of each header, the body
std::string encode(const Kept& kept);
/// Absent for bytes that encode() did not write.
std::optional<Kept> decode(std::string_view bytes);
/// Whether encode() of a later version wrote the bytes.
bool is_newer(std::string_view bytes);

/// Adds it to what the server has set already.
void add(Kept&& kept, httplib::Response& response);

}  // namespace turnstile::http
