#pragma once
// The runtime's log. Each line has topic, partition, offset, handler, member and trace_id as fields, and at warn and
// error its code.

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/code.hpp"
#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace spdlog {
class logger;
}

namespace turnstile::detail {

/// Thread-safe.
class RunLog {
 public:
  RunLog(std::shared_ptr<spdlog::logger> logger, std::string member)
      : logger_(std::move(logger)), member_(std::move(member)) {}

  void debug(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const;
  void info(const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const;
  void warn(Code code, const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const;
  void error(Code code, const TopicPartition& at, std::string_view handler, Offset offset, std::string_view text) const;
  /// About a message. Its line also has the id of its trace, if it has one.
  void info(const TopicPartition& at, std::string_view handler, const Message& message, std::string_view text) const;
  void warn(Code code, const TopicPartition& at, std::string_view handler, const Message& message,
            std::string_view text) const;
  void error(Code code, const TopicPartition& at, std::string_view handler, const Message& message,
             std::string_view text) const;
  /// About a partition as a whole.
  void info(const TopicPartition& at, std::string_view text) const;
  void warn(Code code, const TopicPartition& at, std::string_view text) const;
  void error(Code code, const TopicPartition& at, std::string_view text) const;
  /// About the process.
  void info(std::string_view text) const;
  void warn(Code code, std::string_view text) const;
  void error(Code code, std::string_view text) const;

  [[nodiscard]] const std::string& member() const noexcept { return member_; }
  [[nodiscard]] const std::shared_ptr<spdlog::logger>& logger() const noexcept { return logger_; }

 private:
  std::shared_ptr<spdlog::logger> logger_;
  std::string member_;
};

}  // namespace turnstile::detail
