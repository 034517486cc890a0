// The contract of Arrivals: threads that wait for records in place of the thread that polls.

#include <atomic>
#include <thread>

#include "broker_contract.hpp"
#include "tests/support/eventually.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// Threads that wait for arrivals until the end of the test.
class Waiting {
 public:
  Waiting(std::shared_ptr<ports::Arrivals> arrivals, std::size_t threads) : arrivals_(std::move(arrivals)) {
    for (std::size_t i = 0; i < threads; ++i) {
      threads_.emplace_back([this] {
        while (!over_) {
          if (!arrivals_->wait(Clock::time_point::max())) continue;
          ++have_come;
          arrivals_->listen();
        }
      });
    }
  }
  ~Waiting() {
    over_ = true;
    arrivals_->wake(threads_.size());
    for (auto& thread : threads_) thread.join();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  std::atomic<int> have_come{0};  ///< how often records ended a wait

 private:
  std::shared_ptr<ports::Arrivals> arrivals_;
  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

/// Each record is taken because a thread was told of it: nothing polls.
TEST_P(BrokerContract, tells_a_waiting_thread_of_records) {
  const auto topic = new_topic(2);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_owns(2));
  Waiting waiting(reader.consumer->arrivals(), 3);
  int seen = 0;
  std::size_t taken = 0;
  for (int i = 0; i < 20; ++i) {
    produce(topic, i % 2, 1);
    EXPECT_TRUE(eventually([&] {
      const int now = waiting.have_come;
      if (now == seen) return false;
      seen = now;
      for (const int partition : {0, 1}) {
        if (const auto block = reader.consumer->take({topic, partition}, 10)) taken += block->messages().size();
      }
      return taken == static_cast<std::size_t>(i) + 1;
    })) << i;
    reader.consumer->poll(0ms);
  }
}

TEST_P(BrokerContract, a_wake_of_arrivals_is_not_lost_before_the_threads_wait) {
  const auto topic = new_topic(1);
  Reader reader(*broker, {topic});
  const auto arrivals = reader.consumer->arrivals();
  EXPECT_EQ(reader.consumer->arrivals(), arrivals);
  arrivals->wake(3);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (arrivals->wait(Clock::time_point::max())) arrivals->listen();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_FALSE(arrivals->wait(Clock::now() + 1ms)) << "nothing is left of it";
}

TEST_P(BrokerContract, arrivals_outlive_their_consumer) {
  const auto topic = new_topic(1);
  std::shared_ptr<ports::Arrivals> arrivals;
  {
    Reader reader(*broker, {topic});
    ASSERT_TRUE(reader.until_owns(1));
    arrivals = reader.consumer->arrivals();
  }
  arrivals->wake(1);
  while (arrivals->wait(Clock::time_point::max())) arrivals->listen();
}

/// While no thread waits for arrivals.
TEST_P(BrokerContract, records_end_the_wait_of_the_thread_that_polls) {
  const auto topic = new_topic(1);
  Reader reader(*broker, {topic});
  ASSERT_TRUE(reader.until_owns(1));
  { const Waiting waiting(reader.consumer->arrivals(), 2); }
  const auto began = Clock::now();
  produce(topic, 0, 1);
  std::unique_ptr<ports::Block> block;
  while ((block = reader.consumer->take({topic, 0}, 10)) == nullptr && Clock::now() - began < 30s) {
    reader.consumer->wait(1s);
    reader.consumer->poll(0ms);
  }
  EXPECT_NE(block, nullptr);
  EXPECT_LT(Clock::now() - began, 30s);
}

}  // namespace
}  // namespace turnstile::test
