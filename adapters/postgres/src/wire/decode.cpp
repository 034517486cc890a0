#include "wire/decode.hpp"

namespace turnstile::postgres {

namespace {

/// Reads binary values. Absent once the bytes have ended too early.
class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}
  [[nodiscard]] std::size_t left() const noexcept { return bytes_.size(); }
  std::optional<std::int32_t> int32() {
    const auto four = take(4);
    if (!four) return std::nullopt;
    std::uint32_t value = 0;
    for (const char byte : *four) value = value << 8 | static_cast<unsigned char>(byte);
    return static_cast<std::int32_t>(value);
  }
  std::optional<std::string_view> take(std::size_t count) {
    if (count > bytes_.size()) return std::nullopt;
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

 private:
  std::string_view bytes_;
};

}  // namespace

std::optional<std::vector<std::optional<std::string>>> bytea_array_in(std::string_view bytes) {
  Reader in(bytes);
  std::vector<std::optional<std::string>> elements;
  const auto dimensions = in.int32();
  if (!dimensions || !in.take(8)) return std::nullopt;  // skips the NULL flag and the type
  if (*dimensions == 0) return elements;
  const auto length = in.int32();
  // Each element has a length of at least four bytes.
  if (*dimensions != 1 || !length || *length < 0 || !in.take(4) || static_cast<std::size_t>(*length) > in.left() / 4)
    return std::nullopt;
  elements.reserve(static_cast<std::size_t>(*length));
  for (std::int32_t i = 0; i < *length; ++i) {
    const auto size = in.int32();
    if (!size) return std::nullopt;
    if (*size < 0) {
      elements.emplace_back();
      continue;
    }
    const auto element = in.take(static_cast<std::size_t>(*size));
    if (!element) return std::nullopt;
    elements.emplace_back(std::string(*element));
  }
  return in.left() == 0 ? std::optional(std::move(elements)) : std::nullopt;
}

}  // namespace turnstile::postgres
