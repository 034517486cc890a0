// Which unit starts when. Short transactions must not overload the processors.

#include "engine/scheduler.hpp"

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <thread>

#include "tests/support/owned_block.hpp"
#include "turnstile/decorators.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

/// Messages at the offsets 0, 1, ….
std::unique_ptr<ports::Block> block(const std::string& topic, std::int32_t partition, int count) {
  std::vector<OwnedMessage> owned;
  for (int i = 0; i < count; ++i) {
    OwnedMessage message;
    message.topic = topic;
    message.partition = partition;
    message.offset = i;
    owned.push_back(std::move(message));
  }
  return std::make_unique<test::OwnedBlock>(std::move(owned));
}

/// As many short transactions run as there are processors. One more lane has `waiting` messages.
class Crowd {
 public:
  explicit Crowd(int waiting)
      : run_log_(std::make_shared<RunLog>(
            std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>()), "test")),
        scheduler_(Window{}, run_log_, [] {}) {
    const auto inbox = std::make_shared<testing::MemoryInbox>();
    TopicRunner::Services services;
    services.store = inbox;
    services.run_log = run_log_;
    TopicSettings settings;
    settings.mode = Mode::transactional;
    topic_ = std::make_unique<TopicState>(
        plan_topic("t", settings), [](const Message&) {} | transactional(), inbox->register_handler("t"), services,
        nullptr);
    topic_->mean_ns = 1e6;
    const int processors = static_cast<int>(std::max(2U, std::thread::hardware_concurrency()));
    units_.resize(static_cast<std::size_t>(processors) + 1);
    for (int i = 0; i <= processors; ++i) {
      auto lane = std::make_shared<LaneState>(*topic_, OwnedPartition{.at = {"t", i}, .fence = {}});
      scheduler_.open(lane);
      scheduler_.feed(*lane, block("t", i, i < processors ? 1 : waiting));
      if (i == processors) break;
      slots_.push_back(&scheduler_.add_worker());
      scheduler_.next(units_[static_cast<std::size_t>(i)], *slots_.back());
    }
  }
  void end_one() {
    UnitResult result;
    result.verdicts.assign(1, Verdict{.kind = Verdict::Kind::settled});
    scheduler_.finish(units_.front(), result, *slots_.front());
  }
  /// The time from the start of the first of the others to the start of this one, or a little more.
  steady_clock::duration start_one_more() {
    scheduler_.next(units_.back(), scheduler_.add_worker());
    return steady_clock::now() - began_;
  }

 private:
  std::shared_ptr<RunLog> run_log_;
  std::unique_ptr<TopicState> topic_;
  Scheduler scheduler_;
  std::vector<LaneUnit> units_;
  std::vector<WorkerSlot*> slots_;
  steady_clock::time_point began_ = steady_clock::now();
};

/// The machine may delay the test at any time, so one quick start in several tries is enough.
template <class Make>
bool starts_at_once(Make make) {
  for (int i = 0; i < 50; ++i) {
    if (make() < 3ms) return true;
  }
  return false;
}

TEST(Scheduler, a_few_messages_wait_while_short_transactions_keep_the_processors_busy) {
  EXPECT_FALSE(starts_at_once([] { return Crowd(1).start_one_more(); }));
}

TEST(Scheduler, many_messages_do_not_wait) {
  EXPECT_TRUE(starts_at_once([] { return Crowd(16).start_one_more(); }));
}

TEST(Scheduler, a_few_messages_start_when_one_of_the_short_transactions_has_ended) {
  EXPECT_TRUE(starts_at_once([] {
    Crowd crowd(1);
    crowd.end_one();
    return crowd.start_one_more();
  }));
}

}  // namespace
}  // namespace turnstile::detail
