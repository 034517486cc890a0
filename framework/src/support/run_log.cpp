#include "support/run_log.hpp"

#include <spdlog/spdlog.h>

#include "support/logging.hpp"

namespace turnstile {

namespace {

LogFields fields(const TopicPartition& at, std::string_view handler, std::optional<Offset> offset,
                 const std::string& member) {
  LogFields f;
  if (!at.topic.empty()) {
    f.topic = at.topic;
    f.partition = at.partition;
  }
  f.offset = offset;
  f.handler = handler;
  f.member = member;
  return f;
}

}  // namespace

void RunLog::debug(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const {
  log(*logger_, spdlog::level::debug, text, fields(at, handler, offset, member_));
}
void RunLog::info(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const {
  log(*logger_, spdlog::level::info, text, fields(at, handler, offset, member_));
}
void RunLog::warn(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const {
  log(*logger_, spdlog::level::warn, text, fields(at, handler, offset, member_));
}
void RunLog::error(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const {
  log(*logger_, spdlog::level::err, text, fields(at, handler, offset, member_));
}
void RunLog::info(const TopicPartition& at, std::string_view text) const {
  log(*logger_, spdlog::level::info, text, fields(at, {}, std::nullopt, member_));
}
void RunLog::warn(const TopicPartition& at, std::string_view text) const {
  log(*logger_, spdlog::level::warn, text, fields(at, {}, std::nullopt, member_));
}
void RunLog::error(const TopicPartition& at, std::string_view text) const {
  log(*logger_, spdlog::level::err, text, fields(at, {}, std::nullopt, member_));
}
void RunLog::info(std::string_view text) const {
  log(*logger_, spdlog::level::info, text, fields({}, {}, std::nullopt, member_));
}
void RunLog::warn(std::string_view text) const {
  log(*logger_, spdlog::level::warn, text, fields({}, {}, std::nullopt, member_));
}
void RunLog::error(std::string_view text) const {
  log(*logger_, spdlog::level::err, text, fields({}, {}, std::nullopt, member_));
}

}  // namespace turnstile
