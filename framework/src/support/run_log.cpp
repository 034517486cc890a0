#include "support/run_log.hpp"

#include <spdlog/spdlog.h>

#include "support/logging.hpp"
#include "turnstile/trace.hpp"

namespace turnstile::detail {

namespace {

LogFields fields(std::optional<Code> code, const TopicPartition& at, std::string_view handler,
                 std::optional<Offset> offset, const std::string& member) {
  LogFields f;
  f.code = code;
  if (!at.topic.empty()) {
    f.topic = at.topic;
    f.partition = at.partition;
  }
  f.offset = offset;
  f.handler = handler;
  f.member = member;
  return f;
}

namespace level = spdlog::level;

/// A line about a message, with the id of its trace.
void log_message(spdlog::logger& logger, level::level_enum level, const Message& message, std::string_view text,
                 LogFields f) {
  const auto trace = trace_of(message);
  const std::string id = trace ? trace_id_text(*trace) : std::string();
  f.trace_id = id;
  log(logger, level, text, f);
}

}  // namespace

void RunLog::debug(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const {
  log(*logger_, level::debug, text, fields({}, at, handler, offset, member_));
}
void RunLog::info(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const {
  log(*logger_, level::info, text, fields({}, at, handler, offset, member_));
}
void RunLog::warn(Code code, const TopicPartition& at, std::string_view handler, Offset offset,
                  std::string_view text) const {
  log(*logger_, level::warn, text, fields(code, at, handler, offset, member_));
}
void RunLog::error(Code code, const TopicPartition& at, std::string_view handler, Offset offset,
                   std::string_view text) const {
  log(*logger_, level::err, text, fields(code, at, handler, offset, member_));
}
void RunLog::info(const TopicPartition& at, std::string_view handler, const Message& message,
                  std::string_view text) const {
  log_message(*logger_, level::info, message, text, fields({}, at, handler, message.offset(), member_));
}
void RunLog::warn(Code code, const TopicPartition& at, std::string_view handler, const Message& message,
                  std::string_view text) const {
  log_message(*logger_, level::warn, message, text, fields(code, at, handler, message.offset(), member_));
}
void RunLog::error(Code code, const TopicPartition& at, std::string_view handler, const Message& message,
                   std::string_view text) const {
  log_message(*logger_, level::err, message, text, fields(code, at, handler, message.offset(), member_));
}
void RunLog::info(const TopicPartition& at, std::string_view text) const {
  log(*logger_, level::info, text, fields({}, at, {}, {}, member_));
}
void RunLog::warn(Code code, const TopicPartition& at, std::string_view text) const {
  log(*logger_, level::warn, text, fields(code, at, {}, {}, member_));
}
void RunLog::error(Code code, const TopicPartition& at, std::string_view text) const {
  log(*logger_, level::err, text, fields(code, at, {}, {}, member_));
}
void RunLog::info(std::string_view text) const { log(*logger_, level::info, text, fields({}, {}, {}, {}, member_)); }
void RunLog::warn(Code code, std::string_view text) const {
  log(*logger_, level::warn, text, fields(code, {}, {}, {}, member_));
}
void RunLog::error(Code code, std::string_view text) const {
  log(*logger_, level::err, text, fields(code, {}, {}, {}, member_));
}

}  // namespace turnstile::detail
