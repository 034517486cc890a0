#pragma once
// Captures log lines in memory. A test can read them while other threads continue to log.

#include <spdlog/sinks/base_sink.h>

#include <memory>
#include <mutex>
#include <string>

namespace turnstile::test {

class CapturedLog {
 public:
  /// All lines so far, in the logger's pattern.
  [[nodiscard]] std::string str() const { return sink_->text(); }
  void clear() { sink_->clear(); }
  /// It may outlive this object.
  [[nodiscard]] spdlog::sink_ptr sink() const { return sink_; }

 private:
  class Sink : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::string text() {
      const std::lock_guard lock(mutex_);
      return text_;
    }

    void clear() {
      const std::lock_guard lock(mutex_);
      text_.clear();
    }

   private:
    void sink_it_(const spdlog::details::log_msg& message) override {
      spdlog::memory_buf_t line;
      formatter_->format(message, line);
      text_.append(line.data(), line.size());
    }
    void flush_() override {}

    std::string text_;
  };
  std::shared_ptr<Sink> sink_ = std::make_shared<Sink>();
};

}  // namespace turnstile::test
