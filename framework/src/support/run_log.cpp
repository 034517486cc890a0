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

std::string trace_id_of(const Message& message) {
  const auto trace = trace_of(message);
  return trace ? trace_id_text(*trace) : std::string();
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
  const std::string trace = trace_id_of(message);
  LogFields f = fields({}, at, handler, message.offset(), member_);
  f.trace_id = trace;
  log(*logger_, level::info, text, f);
}
void RunLog::warn(Code code, const TopicPartition& at, std::string_view handler, const Message& message,
                  std::string_view text) const {
  const std::string trace = trace_id_of(message);
  LogFields f = fields(code, at, handler, message.offset(), member_);
  f.trace_id = trace;
  log(*logger_, level::warn, text, f);
}
void RunLog::error(Code code, const TopicPartition& at, std::string_view handler, const Message& message,
                   std::string_view text) const {
  const std::string trace = trace_id_of(message);
  LogFields f = fields(code, at, handler, message.offset(), member_);
  f.trace_id = trace;
  log(*logger_, level::err, text, f);
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
