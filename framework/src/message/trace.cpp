#include "turnstile/trace.hpp"

#include <algorithm>
#include <span>

namespace turnstile {

namespace {

constexpr std::size_t kLength = 55;         // of version 00: "00-" 32 "-" 16 "-" 2
constexpr std::size_t kLongestState = 512;  // what each participant must propagate
constexpr std::uint8_t kKnownFlags = 1;     // sampled
constexpr std::string_view kDigits = "0123456789abcdef";

/// Upper case is not allowed.
bool read_hex(std::string_view text, std::span<std::uint8_t> into) {
  for (std::size_t i = 0; i < into.size(); ++i) {
    const auto high = kDigits.find(text[2 * i]), low = kDigits.find(text[2 * i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return false;
    into[i] = static_cast<std::uint8_t>(high << 4U | low);
  }
  return true;
}

std::string hex(std::span<const std::uint8_t> bytes) {
  std::string text;
  for (const std::uint8_t byte : bytes) {
    text += kDigits[byte >> 4U];
    text += kDigits[byte & 15U];
  }
  return text;
}

bool is_zero(std::span<const std::uint8_t> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::uint8_t byte) { return byte == 0; });
}

bool has_header(const OwnedMessage& message, std::string_view name) {
  return std::any_of(message.headers.begin(), message.headers.end(),
                     [&](const Header& header) { return header.name == name; });
}

}  // namespace

std::optional<TraceContext> parse_traceparent(std::string_view text) {
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return std::nullopt;
  std::array<std::uint8_t, 1> version{}, flags{};
  TraceContext trace;
  if (!read_hex(text.substr(0, 2), version) || !read_hex(text.substr(3, 32), trace.trace_id) ||
      !read_hex(text.substr(36, 16), trace.span_id) || !read_hex(text.substr(53, 2), flags))
    return std::nullopt;
  if (version[0] == 0xff || is_zero(trace.trace_id) || is_zero(trace.span_id)) return std::nullopt;
  // A later version may append fields.
  if (version[0] == 0 ? text.size() != kLength : text.size() > kLength && text[kLength] != '-') return std::nullopt;
  trace.flags = flags[0] & kKnownFlags;
  return trace;
}

std::string to_traceparent(const TraceContext& trace) {
  return "00-" + hex(trace.trace_id) + "-" + hex(trace.span_id) + "-" + hex({&trace.flags, 1});
}

std::string trace_id_text(const TraceContext& trace) { return hex(trace.trace_id); }

std::optional<TraceContext> trace_of(const Message& message) {
  const auto parent = message.find(kTraceparentHeader);
  if (parent.count != 1 || !parent.value) return std::nullopt;
  auto trace = parse_traceparent(*parent.value);
  if (!trace) return std::nullopt;
  const auto state = message.header(kTracestateHeader);
  if (state && state->size() <= kLongestState) trace->state = *state;
  return trace;
}

void put_trace(OwnedMessage& message, const TraceContext& trace) {
  if (has_header(message, kTraceparentHeader)) return;
  std::erase_if(message.headers, [](const Header& header) { return header.name == kTracestateHeader; });
  message.headers.push_back({std::string(kTraceparentHeader), to_traceparent(trace)});
  if (!trace.state.empty()) message.headers.push_back({std::string(kTracestateHeader), trace.state});
}

}  // namespace turnstile
