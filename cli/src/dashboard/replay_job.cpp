#include "replay_job.hpp"

#include <exception>
#include <utility>

#include "../command.hpp"

namespace turnstile::cli::dashboard {

namespace {

/// Of these, the page shows why. All are counted.
constexpr std::size_t kMostNotes = 100;

}  // namespace

class ReplayJob::Listener final : public Replayer::Listener {
 public:
  explicit Listener(ReplayJob& job) : job_(job) {}

  void sent(const postgres::DeadSummary& dead, const TopicPartitionOffset& at, const std::string& caution) override {
    count("replayed");
    note(dead.number, "replayed", to_string(at) + caution);
  }
  void was_faster(std::int64_t number, const std::string& why) override {
    count("skipped");
    note(number, "skipped", why);
  }
  void cannot_be_sent(std::int64_t number, const std::string& why) override {
    count("skipped");
    note(number, "skipped", why);
  }
  void in_doubt(std::int64_t number, const std::string& why) override {
    count("in_doubt");
    note(number, "in doubt", why);
  }
  void left_out(ReplayPart part, const std::string& reason) override {
    count("skipped");
    const std::string why = why_left_out(part, reason);
    const std::lock_guard lock(job_.mutex_);
    Json& left = job_.state_["left_out"];
    for (auto& each : left) {
      if (each["why"] != why) continue;
      each["count"] = each["count"].get<std::int64_t>() + 1;
      return;
    }
    left.push_back({{"count", 1}, {"why", why}});
  }
  bool wait_until(Pace::Clock::time_point due) override {
    std::unique_lock lock(job_.mutex_);
    return !job_.changed_.wait_until(lock, due, [this] { return job_.stopping_; });
  }

 private:
  void count(const char* what) {
    const std::lock_guard lock(job_.mutex_);
    job_.state_[what] = job_.state_[what].get<std::int64_t>() + 1;
  }
  void note(std::int64_t number, const char* result, const std::string& text) {
    const std::lock_guard lock(job_.mutex_);
    Json& notes = job_.state_["notes"];
    notes.push_back({{"number", number}, {"result", result}, {"text", text}});
    if (notes.size() > kMostNotes) notes.erase(0);
  }

  ReplayJob& job_;
};

ReplayJob::~ReplayJob() {
  stop();
  if (thread_.joinable()) thread_.join();
}

void ReplayJob::start(const Config& config, std::int64_t expected, std::function<void(Replayer&)> work) {
  std::unique_lock lock(mutex_);
  if (running_) throw Refusal("a replay runs already: wait for its end, or stop it");
  if (thread_.joinable()) thread_.join();
  running_ = true;
  stopping_ = false;
  state_ = {{"running", true},  {"expected", expected},      {"replayed", 0},         {"skipped", 0}, {"in_doubt", 0},
            {"error", nullptr}, {"left_out", Json::array()}, {"notes", Json::array()}};
  thread_ = std::thread([this, &config, work = std::move(work)] {
    std::string error;
    try {
      Listener listener(*this);
      Replayer replayer(config, false, listener);
      work(replayer);
    } catch (const std::exception& e) {
      error = e.what();
    }
    const std::lock_guard ends(mutex_);
    state_["running"] = false;
    if (!error.empty()) state_["error"] = error;
    else if (stopping_) state_["error"] = "stopped: the rest waits as before";
    running_ = false;
    changed_.notify_all();
  });
}

void ReplayJob::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
}

void ReplayJob::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return !running_; });
}

Json ReplayJob::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

}  // namespace turnstile::cli::dashboard
