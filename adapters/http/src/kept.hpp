#pragma once
// A response as it is kept with the id of its request.

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

/// Takes what an effect has made. Nothing when a content provider is to make the body: then it is not there yet.
std::optional<Kept> taken_from(httplib::Response&& made);

/// Stored, so it must not change. All are netstrings (the length in decimal, a colon, the bytes, a comma):
///   "H1", the status, name and value of each header, the body
std::string encode(const Kept& kept);
/// Nothing for what encode() did not write.
std::optional<Kept> decode(std::string_view bytes);
/// Whether the encode() of a later version wrote it.
bool is_newer(std::string_view bytes);

/// Adds it to what the server has set before.
void add(Kept&& kept, httplib::Response& response);

}  // namespace turnstile::http
