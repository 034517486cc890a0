#include "support/logging.hpp"

#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>

#include "turnstile/error.hpp"
#include "turnstile/log.hpp"
#include "turnstile/text.hpp"

namespace turnstile::detail {
namespace {

namespace level = spdlog::level;

constexpr const char* kLoggerName = "turnstile";
constexpr const char* kTextPattern = "%Y-%m-%dT%H:%M:%S.%e%z %-5l %v";
/// The largest part of a message, and of each field, that is logged. An exception of a handler may have a text of any
/// size. Turnstile's own texts are shorter.
constexpr std::size_t kMostBytes = 8'192;

struct NamedLevel {
  std::string_view name;
  level::level_enum value;
};
// spdlog's own names differ between releases ("warn", "warning"). These are the names that [log] documents.
constexpr std::array kLevels{NamedLevel{"trace", level::trace}, NamedLevel{"debug", level::debug},
                             NamedLevel{"info", level::info},   NamedLevel{"warn", level::warn},
                             NamedLevel{"error", level::err},   NamedLevel{"off", level::off}};

std::string_view name_of(level::level_enum value) {
  const auto* found = std::find_if(kLevels.begin(), kLevels.end(), [&](const auto& l) { return l.value == value; });
  return found == kLevels.end() ? "critical" : found->name;
}

level::level_enum level_of(const std::string& name) {
  const auto* found = std::find_if(kLevels.begin(), kLevels.end(), [&](const auto& l) { return l.name == name; });
  if (found == kLevels.end()) {
    throw ConfigError({"log.level: '" + name + "' is not a level; use trace, debug, info, warn, error or off"});
  }
  return found->value;
}

std::string_view as_std(spdlog::string_view_t text) { return {text.data(), text.size()}; }
spdlog::string_view_t as_spdlog(std::string_view text) { return {text.data(), text.size()}; }

/// The text, or its beginning up to the end of a character and how many bytes it had.
std::string bounded(std::string_view text) {
  if (text.size() <= kMostBytes) return std::string(text);
  const auto is_inside = [&](std::size_t at) { return (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80; };
  std::size_t end = kMostBytes;
  while (is_inside(end) && kMostBytes - end < 3) --end;
  return fmt::format("{}… ({} bytes)", text.substr(0, end), text::number(static_cast<std::int64_t>(text.size())));
}

std::string json_line(const spdlog::details::log_msg& message, const LogFields& fields) {
  nlohmann::ordered_json line;
  line["time"] = text::utc(message.time);
  line["level"] = name_of(message.level);
  line["message"] = bounded(as_std(message.payload));
  if (fields.code) line["code"] = to_text(*fields.code);
  if (!fields.topic.empty()) line["topic"] = bounded(fields.topic);
  if (fields.partition) line["partition"] = *fields.partition;
  if (fields.offset) line["offset"] = *fields.offset;
  if (!fields.handler.empty()) line["handler"] = bounded(fields.handler);
  if (!fields.member.empty()) line["member"] = bounded(fields.member);
  if (!fields.trace_id.empty()) line["trace_id"] = bounded(fields.trace_id);
  // An error's text may contain any bytes. Invalid UTF-8 is replaced, so that each line stays valid JSON.
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// Formats every message as a JSON object. Its sinks must print the payload alone.
class JsonLogger final : public spdlog::logger {
 public:
  using spdlog::logger::logger;
  JsonLogger(const JsonLogger&) = default;

  void write(level::level_enum level, std::string_view message, const LogFields& fields) {
    write(spdlog::details::log_msg(as_spdlog(name()), level, as_spdlog(message)), fields);
  }
  std::shared_ptr<spdlog::logger> clone(std::string name) override {
    auto copy = std::make_shared<JsonLogger>(*this);
    copy->name_ = std::move(name);
    return copy;
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override { write(message, {}); }

 private:
  void write(const spdlog::details::log_msg& message, const LogFields& fields) {
    const std::string line = json_line(message, fields);
    spdlog::details::log_msg replaced = message;
    replaced.payload = as_spdlog(line);
    spdlog::logger::sink_it_(replaced);
  }
};

/// Passes everything to another logger, which decides about level and format.
class RedirectedLogger final : public spdlog::logger {
 public:
  explicit RedirectedLogger(std::shared_ptr<spdlog::logger> to) : spdlog::logger(kLoggerName), to_(std::move(to)) {
    set_level(level::trace);
  }

  void redirect(std::shared_ptr<spdlog::logger> to) {
    if (to.get() == this) return;
    const std::lock_guard lock(mutex_);
    to_ = std::move(to);
  }
  [[nodiscard]] std::shared_ptr<spdlog::logger> target() const {
    const std::lock_guard lock(mutex_);
    return to_;
  }
  std::shared_ptr<spdlog::logger> clone(std::string) override { return std::make_shared<RedirectedLogger>(target()); }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override { target()->log(message.level, message.payload); }
  void flush_() override { target()->flush(); }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<spdlog::logger> to_;
};

/// What a terminal could act on, and bytes that are no UTF-8, are escaped as `turnstile top` does it.
void append_escaped(std::string& out, std::string_view text, bool in_quotes) {
  while (!text.empty()) {
    const auto next = text::first_character(text);
    const std::size_t bytes = next ? next->bytes : 1;
    const char first = text[0];
    if (first == '\n') out += "\\n";
    else if (first == '\r') out += "\\r";
    else if (first == '\t') out += "\\t";
    else if (!next || (bytes == 1 && text::is_control(next->code)))
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(first));
    else if (text::is_control(next->code) || text::is_direction(next->code))
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(next->code));
    else {
      if (in_quotes && (first == '"' || first == '\\')) out += '\\';
      out += text.substr(0, bytes);
    }
    text.remove_prefix(bytes);
  }
}

void append_field(std::string& out, std::string_view name, std::string_view whole) {
  if (whole.empty()) return;
  const std::string value = bounded(whole);
  out += ' ';
  out += name;
  out += '=';
  const bool plain = std::none_of(value.begin(), value.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 0x20 || c == 0x7F || c == '"' || c == '=' || c == '\\';
  });
  if (!plain) out += '"';
  append_escaped(out, value, !plain);
  if (!plain) out += '"';
}

std::string text_line(std::string_view message, const LogFields& fields) {
  std::string line;
  append_escaped(line, bounded(message), false);
  if (fields.code) append_field(line, "code", to_text(*fields.code));
  append_field(line, "topic", fields.topic);
  if (fields.partition) append_field(line, "partition", std::to_string(*fields.partition));
  if (fields.offset) append_field(line, "offset", std::to_string(*fields.offset));
  append_field(line, "handler", fields.handler);
  append_field(line, "member", fields.member);
  append_field(line, "trace_id", fields.trace_id);
  return line;
}

}  // namespace

std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings, spdlog::sink_ptr sink) {
  const auto least = level_of(settings.level);
  std::shared_ptr<spdlog::logger> logger;
  if (settings.format == "json") {
    logger = std::make_shared<JsonLogger>(kLoggerName, std::move(sink));
    logger->set_pattern("%v");
  } else if (settings.format == "text") {
    logger = std::make_shared<spdlog::logger>(kLoggerName, std::move(sink));
    logger->set_pattern(kTextPattern);
  } else {
    throw ConfigError({"log.format: '" + settings.format + "' is not a format; use text or json"});
  }
  logger->set_level(least);
  return logger;
}

void log(spdlog::logger& logger, spdlog::level::level_enum level, std::string_view message, const LogFields& fields) {
  if (const auto* redirected = dynamic_cast<RedirectedLogger*>(&logger)) {
    return log(*redirected->target(), level, message, fields);
  }
  if (!logger.should_log(level)) return;
  if (auto* json = dynamic_cast<JsonLogger*>(&logger)) {
    json->write(level, message, fields);
  } else {
    logger.log(level, as_spdlog(text_line(message, fields)));
  }
}

}  // namespace turnstile::detail

namespace turnstile {

std::shared_ptr<spdlog::logger> make_logger(const LogSettings& settings) {
  return detail::make_logger(settings, std::make_shared<spdlog::sinks::stderr_sink_mt>());
}

std::shared_ptr<spdlog::logger> make_redirectable_logger(const LogSettings& settings) {
  return std::make_shared<detail::RedirectedLogger>(make_logger(settings));
}

void redirect(spdlog::logger& from, std::shared_ptr<spdlog::logger> to) {
  if (auto* redirected = dynamic_cast<detail::RedirectedLogger*>(&from); redirected != nullptr && to) {
    redirected->redirect(std::move(to));
  }
}

void log_warning(spdlog::logger& logger, Code code, std::string_view text) {
  detail::log(logger, spdlog::level::warn, text, {.code = code});
}

void log_error(spdlog::logger& logger, Code code, std::string_view text) {
  detail::log(logger, spdlog::level::err, text, {.code = code});
}

}  // namespace turnstile
