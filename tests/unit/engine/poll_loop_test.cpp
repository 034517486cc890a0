// PollLoop with the in-memory broker and store: what its caller must know about brokers and about other loops.

#include "turnstile/poll_loop.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <functional>
#include <set>
#include <stop_token>
#include <thread>
#include <utility>

#include "engine/setup.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_store.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/limiter.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

struct Loop {
  test::CapturedLog log;
  PollLoop loop;

  Loop(const Config& config, Pipeline pipeline, const std::shared_ptr<testing::MemoryBroker>& broker,
       const std::shared_ptr<testing::MemoryInbox>& inbox, const std::shared_ptr<ports::Limiters>& limiters = nullptr)
      : loop(config, Backends{broker, inbox, limiters}) {
    loop.logger(std::make_shared<spdlog::logger>("t", log.sink()));
    loop.topic("t", std::move(pipeline));
  }
  Settled handle(Offset offset) { return handle(offset, {{"message-id", "id-" + std::to_string(offset)}}); }
  Settled handle(Offset offset, std::vector<Header> headers) {
    OwnedMessage message;
    message.topic = "t";
    message.offset = offset;
    message.headers = std::move(headers);
    return loop.handle(Message(message));
  }
};

Pipeline insert() {
  return [](const Message& message, Context& ctx) { ctx.tx().exec("INSERT", message.offset()); };
}

class PollLoopTest : public ::testing::Test {
 protected:
  std::shared_ptr<testing::MemoryBroker> broker_ = std::make_shared<testing::MemoryBroker>();
  std::shared_ptr<testing::MemoryInbox> inbox_ = std::make_shared<testing::MemoryInbox>();
};

TEST_F(PollLoopTest, handles_records_of_a_topic_that_its_broker_does_not_have) {
  Loop loop(Config{}, insert() | transactional(), broker_, inbox_);
  EXPECT_EQ(loop.handle(0), Settled::done);
  EXPECT_THAT(loop.log.str(), HasSubstr("topic t is not in the Kafka cluster of [kafka]"));

  Config config;
  config.topics["t"].keep_ids_for = std::chrono::hours(24);
  Loop with_ids(config, insert() | transactional(), broker_, inbox_);
  EXPECT_EQ(with_ids.handle(1), Settled::done);
  EXPECT_THAT(with_ids.log.str(), Not(HasSubstr("is not in the Kafka")));
}

TEST_F(PollLoopTest, tells_that_a_message_waits_for_a_stored_retry) {
  broker_->create_topic("t", 1);
  std::atomic<int> runs{0};
  Loop loop(Config{},
            Pipeline([&](const Message&, Context&) {
              if (++runs == 1) throw std::runtime_error("not yet");
            }) | transactional() |
                retry(exponential{1ms, 3}).durable(),
            broker_, inbox_);
  OwnedMessage first;
  first.topic = "t";
  first.partition = 0;
  first.headers = {{"message-id", "one"}};
  broker_->produce(first);
  const auto read = [&](std::size_t offset) { return loop.loop.handle(Message(broker_->records("t").at(offset))); };
  EXPECT_EQ(read(0), Settled::deferred);
  ASSERT_TRUE(test::eventually([&] { return broker_->records("t").size() == 2; })) << "the relay sends it again";
  EXPECT_EQ(read(1), Settled::done);
  EXPECT_EQ(runs, 2);
}

/// Reports the retention of a topic as the test sets it.
class Reticent final : public ports::Broker {
 public:
  explicit Reticent(std::shared_ptr<ports::Broker> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<ports::BrokerConsumer> open_consumer() override { return inner_->open_consumer(); }
  std::shared_ptr<ports::BrokerProducer> open_producer() override { return inner_->open_producer(); }
  std::unique_ptr<ports::BrokerSender> open_sender() override { return inner_->open_sender(); }
  std::optional<ports::TopicInfo> describe(const std::string&, std::chrono::milliseconds) override { return info; }

  ports::TopicInfo info{.partitions = 1, .retention = {}, .why_unknown = "grant DescribeConfigs on t"};

 private:
  std::shared_ptr<ports::Broker> inner_;
};

TEST_F(PollLoopTest, warns_of_a_topic_whose_retention_is_unknown) {
  const auto broker = std::make_shared<Reticent>(broker_);
  const auto warning = [&](const Config& config, const std::function<Pipeline(Pipeline)>& add) {
    test::CapturedLog log;
    PollLoop loop(config, Backends{broker, std::make_shared<testing::MemoryInbox>()});
    loop.logger(std::make_shared<spdlog::logger>("t", log.sink())).topic("t", add(insert()));
    OwnedMessage message;
    message.topic = "t";
    message.headers = {{"message-id", "one"}};
    loop.handle(Message(message));
    return log.str();
  };
  const auto once = [](Pipeline pipeline) { return std::move(pipeline) | transactional(); };
  EXPECT_THAT(warning({}, once),
              AllOf(HasSubstr("topic t: how long it keeps its records is unknown: grant "
                              "DescribeConfigs on t. Until the broker tells, the topic's ids are kept "
                              "forever"),
                    HasSubstr("retention_unknown")));
  Config config;
  config.topics["t"].keep_ids_for = 24h;
  EXPECT_THAT(warning(config, once), HasSubstr("grant DescribeConfigs on t. keep_ids_for is 24 h. If records stay"));
  EXPECT_THAT(warning({}, [](Pipeline pipeline) { return std::move(pipeline) | by_offset(); }),
              Not(HasSubstr("is unknown")))
      << "it keeps no ids";
  broker->info = {.partitions = 1, .retention = 1h};
  EXPECT_THAT(warning({}, once), Not(HasSubstr("is unknown")));
}

TEST_F(PollLoopTest, asks_again_for_a_retention_that_was_unknown) {
  const auto broker = std::make_shared<Reticent>(broker_);
  detail::ConsumerSpec spec;
  spec.backends = Backends{broker, inbox_, make_local_limiters()};
  spec.topics.emplace_back("t", insert() | transactional());
  spec.logger = std::make_shared<spdlog::logger>("t");
  const auto kept = detail::retained(detail::build_topics(spec, detail::open_run_log(spec), true, {}));
  ASSERT_EQ(kept.size(), 1U);
  EXPECT_FALSE(kept[0]->learn());
  EXPECT_EQ(kept[0]->keep_for(), std::nullopt);
  broker->info = {.partitions = 1, .retention = 30 * 24h, .segment = 24h};
  EXPECT_TRUE(kept[0]->learn());
  EXPECT_EQ(kept[0]->keep_for(), std::chrono::seconds(32 * 24h));
}

TEST_F(PollLoopTest, needs_the_topics_that_it_sends_to) {
  Loop loop(Config{}, insert() | transactional() | dead_letter("t.dlq"), broker_, inbox_);
  try {
    loop.handle(0);
    ADD_FAILURE() << "it started";
  } catch (const BrokerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("dead letter topic 't.dlq' does not exist"));
    EXPECT_THAT(error.what(), Not(HasSubstr("topic 't' does not exist")));
  }
}

/// The store throws `Error` when the row of the first dead letter is written.
template <class Error>
class AwayForARow final : public test::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  bool record_dead(const ports::DeadMessage& message) override {
    if (std::exchange(is_first_, false)) throw Error("it is away");
    return ForwardingStore::record_dead(message);
  }

 private:
  bool is_first_ = true;
};

template <class Error>
class PollLoopDeadLetterTest : public PollLoopTest {};
using RowErrors = ::testing::Types<StoreUnavailable, StoreBusy>;
TYPED_TEST_SUITE(PollLoopDeadLetterTest, RowErrors);

TYPED_TEST(PollLoopDeadLetterTest, a_row_that_cannot_be_written_is_an_outage_of_the_database) {
  this->broker_->create_topic("t.dlq", 1);
  int runs = 0;
  PollLoop loop(Config{}, Backends{this->broker_, std::make_shared<AwayForARow<TypeParam>>(this->inbox_)});
  loop.topic("t", Pipeline([&](const Message&, Context&) {
                    ++runs;
                    throw std::runtime_error("always");
                  }) | transactional() |
                      retry(exponential{std::chrono::milliseconds(1), 2}) | dead_letter());
  OwnedMessage owned;
  owned.topic = "t";
  owned.headers = {{"message-id", "one"}};
  const Message message(owned);
  try {
    loop.handle(message);
    ADD_FAILURE() << "no StoreUnavailable";
  } catch (const StoreUnavailable& e) {
    EXPECT_THAT(e.what(), HasSubstr("the row of its dead letter was not written: it is away"));
  }
  EXPECT_EQ(loop.handle(message), Settled::dead_letter);
  EXPECT_EQ(runs, 2) << "it is dead already";
}

/// Each table is locked once, for longer than the lock timeout.
class Locked final : public test::ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  HandlerId register_handler(const std::string& name) override {
    wait_for("handler");
    return ForwardingStore::register_handler(name);
  }
  std::vector<ports::PartitionClaim> claim_partitions(const std::string& group,
                                                      std::span<const TopicPartition> partitions,
                                                      const ports::ClaimWait& wait) override {
    wait_for("fence");
    return ForwardingStore::claim_partitions(group, partitions, wait);
  }
  std::vector<ports::WatermarkState> advance_watermarks(std::span<const ports::WatermarkUpdate> updates) override {
    wait_for("watermark");
    return ForwardingStore::advance_watermarks(updates);
  }
  std::set<Offset> dead_between(HandlerId handler, const Fence& fence, Offset first, Offset last,
                                std::optional<DeadReason> reason) override {
    wait_for("dead");
    return ForwardingStore::dead_between(handler, fence, first, last, reason);
  }

 private:
  void wait_for(const std::string& table) {
    if (seen_.insert(table).second) throw StoreBusy(table + " is locked (SQLSTATE 55P03)");
  }
  std::set<std::string> seen_;
};

/// What handle() throws is what its header lists.
TEST_F(PollLoopTest, a_locked_table_is_an_outage_of_the_database) {
  PollLoop loop(Config{}, Backends{broker_, std::make_shared<Locked>(inbox_)});
  loop.topic("t", insert() | transactional() | id_from("offset"));
  OwnedMessage owned;
  owned.topic = "t";
  const Message message(owned);
  for (const char* const table : {"handler", "fence", "watermark", "dead"}) {
    try {
      loop.handle(message);
      ADD_FAILURE() << "no StoreUnavailable for " << table;
    } catch (const StoreUnavailable& e) {
      EXPECT_EQ(e.code(), Code::store_busy);
      EXPECT_THAT(e.what(), HasSubstr(table));
    }
  }
  EXPECT_EQ(loop.handle(message), Settled::done);
  EXPECT_EQ(inbox_->committed().size(), 1U);
}

/// The test can take each permit away, as if its lease ended.
class LosableLimiter final : public ports::Limiter {
 public:
  std::stop_source lease;

  [[nodiscard]] const std::string& name() const noexcept override { return name_; }
  Permit try_acquire() override {
    lease = std::stop_source();
    return {shared_from_this(), 1, lease.get_token()};
  }
  Permit try_acquire_fairly(std::int64_t) override { return try_acquire(); }
  void when_free(std::function<void()> wake) override { wake(); }
  [[nodiscard]] ports::LimiterState state() const override { return {.limit = 1}; }

 private:
  void release(std::uint64_t) noexcept override {}
  std::string name_ = "losable";
};

struct LosableLimiters final : ports::Limiters {
  std::shared_ptr<LosableLimiter> limiter = std::make_shared<LosableLimiter>();
  std::shared_ptr<ports::Limiter> open(const std::string&, std::int64_t) override { return limiter; }
};

/// A run that ended because its permit was lost is no attempt, and does not reset the attempts before it.
TEST_F(PollLoopTest, counts_attempts_on_after_a_permit_was_lost) {
  broker_->create_topic("t.dlq", 1);
  const auto limiters = std::make_shared<LosableLimiters>();
  std::vector<int> attempts;
  Loop loop(Config{},
            Pipeline([&](const Message&, Context& ctx) {
              attempts.push_back(ctx.attempt());
              if (attempts.size() == 3 || attempts.size() == 5) {
                limiters->limiter->lease.request_stop();
                return;
              }
              throw std::runtime_error("always");
            }) | transactional() |
                limit(1) | retry(exponential{std::chrono::milliseconds(1), 3}) | dead_letter(),
            broker_, inbox_, limiters);
  EXPECT_EQ(loop.handle(0), Settled::dead_letter);
  EXPECT_THAT(attempts, ElementsAre(1, 2, 3, 3));
}

/// The caller handles the message again until the store answers. The number of failures is not forgotten.
TEST_F(PollLoopTest, counts_attempts_on_after_the_store_was_away) {
  broker_->create_topic("t.dlq", 1);
  std::vector<int> attempts;
  Loop loop(Config{},
            Pipeline([&](const Message&, Context& ctx) {
              attempts.push_back(ctx.attempt());
              inbox_->fail_next_begin(std::make_exception_ptr(StoreUnavailable("away")));
              throw std::runtime_error("always");
            }) | transactional() |
                retry(exponential{std::chrono::milliseconds(1), 3}) | dead_letter(),
            broker_, inbox_);
  EXPECT_THROW(loop.handle(0), StoreUnavailable);
  EXPECT_THROW(loop.handle(0), StoreUnavailable);
  EXPECT_EQ(loop.handle(0), Settled::dead_letter);
  EXPECT_THAT(attempts, ElementsAre(1, 2, 3));
}

TEST_F(PollLoopTest, counts_attempts_on_after_what_was_read_again) {
  broker_->create_topic("t.dlq", 1);
  std::vector<int> attempts;
  Loop loop(Config{},
            Pipeline([&](const Message& message, Context& ctx) {
              if (message.offset() == 0) return;
              attempts.push_back(ctx.attempt());
              inbox_->fail_next_begin(std::make_exception_ptr(StoreUnavailable("away")));
              throw std::runtime_error("always");
            }) | transactional() |
                retry(exponential{std::chrono::milliseconds(1), 2}) | dead_letter(),
            broker_, inbox_);
  EXPECT_EQ(loop.handle(0), Settled::done);
  EXPECT_THROW(loop.handle(1), StoreUnavailable);
  inbox_->fail_over(inbox_->replica());
  EXPECT_THROW(loop.handle(1), ReadAgain);
  loop.loop.revoked({"t", 0});
  EXPECT_EQ(loop.handle(0), Settled::duplicate);
  EXPECT_EQ(loop.handle(1), Settled::dead_letter);
  EXPECT_THAT(attempts, ElementsAre(1, 2));
}

/// Calls handle() on a thread, and keeps what it threw.
class Handling {
 public:
  Handling(Loop& loop, Offset offset)
      : thread_([this, &loop, offset] {
          try {
            loop.handle(offset);
            ended_ = "settled";
          } catch (const Stopped& stopped) {
            ended_ = stopped.what();
          } catch (const std::exception& e) {
            ended_ = std::string("another: ") + e.what();
          }
        }) {}
  /// Waits until handle() has ended. Returns how long that took.
  std::chrono::steady_clock::duration join() {
    const auto since = std::chrono::steady_clock::now();
    thread_.join();
    return std::chrono::steady_clock::now() - since;
  }
  [[nodiscard]] const std::string& ended() const { return ended_; }

 private:
  std::string ended_;
  std::thread thread_;
};

TEST_F(PollLoopTest, stop_ends_the_wait_for_a_permit) {
  const auto limiters = make_local_limiters();
  const Permit all = limiters->open("t", 1)->try_acquire();
  ASSERT_TRUE(all);
  int runs = 0;
  Loop loop(Config{}, Pipeline([&](const Message&, Context&) { ++runs; }) | transactional() | limit("t", 1), broker_,
            inbox_, limiters);
  Handling waiting(loop, 0);
  std::this_thread::sleep_for(100ms);
  loop.loop.stop();
  EXPECT_LT(waiting.join(), 1s);
  EXPECT_THAT(waiting.ended(), HasSubstr("t[0]@0: not handled: stop() was called"));
  EXPECT_EQ(runs, 0);
  EXPECT_THROW(loop.handle(1), Stopped) << "and none later";
}

TEST_F(PollLoopTest, stop_ends_the_wait_for_the_next_attempt) {
  Loop loop(Config{},
            Pipeline([](const Message&, Context&) { throw std::runtime_error("always"); }) | transactional() |
                retry(exponential{1h, 3, 1h}),
            broker_, inbox_);
  Handling waiting(loop, 0);
  std::this_thread::sleep_for(100ms);
  loop.loop.stop();
  EXPECT_LT(waiting.join(), 1s);
  EXPECT_THAT(waiting.ended(), HasSubstr("stop() was called"));
  EXPECT_THAT(inbox_->committed(), IsEmpty());
}

TEST_F(PollLoopTest, stop_is_seen_by_a_handler_and_its_transaction_is_rolled_back) {
  Loop loop(Config{}, Pipeline([](const Message&, Context& ctx) {
                        ctx.tx().exec("INSERT");
                        while (!ctx.stop_token().stop_requested()) std::this_thread::sleep_for(1ms);
                      }) | transactional(),
            broker_, inbox_);
  Handling running(loop, 0);
  std::this_thread::sleep_for(100ms);
  loop.loop.stop();
  EXPECT_LT(running.join(), 1s);
  EXPECT_THAT(running.ended(), HasSubstr("stop() was called"));
  EXPECT_THAT(inbox_->committed(), IsEmpty());
}

TEST_F(PollLoopTest, sets_the_stop_token_when_a_handler_runs_for_longer_than_its_handler_timeout) {
  std::vector<bool> stopped;
  Loop loop(Config{},
            Pipeline([&](const Message&, Context& ctx) {
              const auto until = std::chrono::steady_clock::now() + (stopped.empty() ? 10s : 20ms);
              while (!ctx.stop_token().stop_requested() && std::chrono::steady_clock::now() < until)
                std::this_thread::sleep_for(1ms);
              stopped.push_back(ctx.stop_token().stop_requested());
            }) | transactional() |
                handler_timeout(200ms),
            broker_, inbox_);
  EXPECT_EQ(loop.handle(0), Settled::done);
  EXPECT_EQ(loop.handle(1), Settled::done);
  EXPECT_THAT(stopped, ElementsAre(true, false));
  EXPECT_THAT(loop.log.str(), HasSubstr("the handler has run for longer than handler_timeout (200 ms)"));
}

/// If a dead letter is published again for another handler of the topic, it is not a duplicate to raise.
TEST_F(PollLoopTest, raises_duplicates_but_not_what_it_passes_over) {
  Loop loop(Config{}, insert() | transactional() | on_duplicate(DuplicatePolicy::raise), broker_, inbox_);
  EXPECT_EQ(loop.handle(0), Settled::done);
  EXPECT_EQ(
      loop.handle(
          1, {{"message-id", "id-0"}, {"turnstile-replayed-for", "another"}, {"turnstile-replayed-from", "t[0]@0"}}),
      Settled::duplicate);
  EXPECT_THROW(loop.handle(2, {{"message-id", "id-0"}}), Duplicate);
  EXPECT_EQ(loop.handle(3), Settled::done);
  EXPECT_EQ(loop.handle(4, {{"message-id", "id-4"},
                            {"turnstile-replayed-for", "t"},
                            {"turnstile-replayed-group", "another"},
                            {"turnstile-replayed-from", "t[0]@0"}}),
            Settled::duplicate);
}

/// A service with a new group.id names its handler, so that it keeps its ids.
TEST_F(PollLoopTest, runs_what_is_published_again_for_a_handler_that_any_group_may_have) {
  Loop loop(Config{}, insert() | transactional() | handler_id("t"), broker_, inbox_);
  EXPECT_EQ(loop.handle(0, {{"message-id", "id-0"},
                            {"turnstile-replayed-for", "t"},
                            {"turnstile-replayed-group", "its group before"},
                            {"turnstile-replayed-from", "t[0]@0"}}),
            Settled::done);
}

/// As the header of PollLoop says, only one loop of a group may have a partition at a time.
TEST_F(PollLoopTest, two_of_one_group_on_one_partition_fence_each_other) {
  Loop one(Config{}, insert() | transactional(), broker_, inbox_),
      other(Config{}, insert() | transactional(), broker_, inbox_);
  EXPECT_EQ(one.handle(0), Settled::done);
  EXPECT_EQ(other.handle(1), Settled::done);
  EXPECT_THROW(one.handle(2), Fenced);
  EXPECT_EQ(one.handle(2), Settled::done) << "it claims the partition anew";
  EXPECT_THROW(other.handle(3), Fenced);
}

}  // namespace
}  // namespace turnstile
