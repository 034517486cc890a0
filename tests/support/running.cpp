#include "tests/support/running.hpp"

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <mutex>

#include "support/logging.hpp"
#include "tests/support/eventually.hpp"

namespace turnstile::test {

class Running::Sink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  std::vector<std::string> lines() {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const auto level = spdlog::level::to_string_view(message.level);
    lines_.push_back(std::string(level.data(), level.size()) + " " +
                     std::string(message.payload.data(), message.payload.size()));
  }
  void flush_() override {}

  std::vector<std::string> lines_;
};

Running::Running(Config config, SetUp set_up) : sink_(std::make_shared<Sink>()) {
  const auto logger = detail::make_logger(config.log, sink_);
  try {
    auto backends = connect(config, logger);
    consumer_ = std::make_unique<Consumer>(std::move(config), std::move(backends));
    consumer_->handle_signals(false).logger(logger);
    set_up(*consumer_);
  } catch (const std::exception& e) {
    thrown_ = e.what();
    ended_ = true;
    return;
  }
  thread_ = std::thread([this] {
    try {
      consumer_->run();
    } catch (const std::exception& e) {
      thrown_ = e.what();
    }
    ended_ = true;
  });
}

Running::~Running() { stop(); }

std::string Running::stop() {
  if (consumer_) consumer_->stop();
  if (thread_.joinable()) thread_.join();
  return thrown_;
}

std::string Running::failure(std::chrono::milliseconds timeout) {
  return eventually([this] { return ended_.load(); }, timeout) ? thrown_ : std::string();
}

std::vector<std::string> Running::log() const { return sink_->lines(); }

std::string Running::log_text() const {
  std::string text;
  for (const auto& line : log()) text += line + "\n";
  return text;
}

int Running::lines_with(const std::string& text) const {
  int count = 0;
  for (const auto& line : log()) count += line.find(text) != std::string::npos ? 1 : 0;
  return count;
}

bool Running::says(const std::string& text, std::chrono::milliseconds timeout) const {
  return eventually([&] { return lines_with(text) > 0; }, timeout);
}

}  // namespace turnstile::test
