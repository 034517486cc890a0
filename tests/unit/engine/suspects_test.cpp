// After an owner has died, the messages that were running run alone. A message that kills its process again and again
// becomes a dead letter.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>

#include "engine/lane.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/forwarding_store.hpp"
#include "tests/support/owned_block.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/harness.hpp"
#include "turnstile/testing/inbox.hpp"
#include "turnstile/turnstile.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryBroker;
using testing::MemoryInbox;

// --- the lane --------------------------------------------------------------------------------------------------------

const SteadyTime kNow{std::chrono::seconds(1000)};

std::unique_ptr<ports::Block> block(int count) {
  std::vector<OwnedMessage> owned;
  for (int i = 0; i < count; ++i) {
    OwnedMessage message;
    message.topic = "t";
    message.offset = i;
    message.key = std::to_string(i);
    owned.push_back(std::move(message));
  }
  return std::make_unique<test::OwnedBlock>(std::move(owned));
}

/// The offsets of each unit. A unit is settled before the next one. "!" stands before a unit that runs alone.
std::string units(Lane& lane) {
  std::string text;
  for (std::vector<Work> works; lane.hand_out(3, kNow, works), !works.empty(); works.clear()) {
    text += text.empty() ? "" : " ";
    for (const Work& work : works) {
      text += (work.alone ? "!" : "") + std::to_string(work.message->offset());
      if (work.alone) text += "/" + std::to_string(work.attempt);
      lane.settle(work);
    }
  }
  return text;
}

TEST(Suspects, are_handed_out_one_at_a_time) {
  for (const Order order : {Order::partition, Order::none}) {
    Lane lane(order);
    lane.add(block(8));
    lane.single_out({{2, 0}, {3, 4}, {6, 1}, {99, 0}});
    EXPECT_EQ(units(lane), "01 !2/1 !3/5 45 !6/2 7");
    EXPECT_EQ(lane.position(), 8);
  }
}

TEST(Suspects, are_handed_out_one_at_a_time_where_keys_are_ordered) {
  Lane lane(Order::key);
  lane.single_out({{2, 0}, {3, 4}});
  lane.add(block(5));
  const std::string all = units(lane);
  EXPECT_THAT(" " + all + " ", HasSubstr(" !2/1 "));
  EXPECT_THAT(" " + all + " ", HasSubstr(" !3/5 "));
  EXPECT_EQ(lane.position(), 5);
  EXPECT_FALSE(lane.has_suspects());
}

TEST(Suspects, are_singled_out_of_what_waits_already) {
  Lane lane(Order::partition);
  lane.add(block(3));
  std::vector<Work> works;
  lane.hand_out(3, kNow, works);
  for (const Work& work : works) lane.put_back(work);
  lane.single_out({{1, 0}});
  EXPECT_EQ(units(lane), "0 !1/1 2");
}

/// While the store is unavailable, nobody counts their deaths.
TEST(Suspects, are_passed_where_the_order_allows_it) {
  for (const Order order : {Order::partition, Order::key, Order::none}) {
    Lane lane(order);
    lane.single_out({{1, 0}, {3, 0}});
    lane.add(block(6));
    std::vector<Work> works;
    lane.hand_out(10, kNow, works, true);
    std::vector<Offset> offsets;
    for (const Work& work : works) {
      offsets.push_back(work.message->offset());
      lane.settle(work);
    }
    if (order == Order::partition) {
      EXPECT_THAT(offsets, ElementsAre(0));
      EXPECT_EQ(units(lane), "!1/1 2 !3/1 45");
      continue;
    }
    EXPECT_THAT(offsets, ElementsAre(0, 2, 4, 5));
    works.clear();
    lane.hand_out(10, kNow, works, true);
    EXPECT_THAT(works, IsEmpty());
    EXPECT_EQ(units(lane), "!1/1 !3/1");
    EXPECT_EQ(lane.position(), 6);
  }
}

// --- the engine ------------------------------------------------------------------------------------------------------

class SuspectsTest : public ::testing::Test {
 protected:
  SuspectsTest() {
    broker->create_topic("t", 2);
    broker->create_topic("t.dlq", 1);
  }
  void publish(int partition, int n) {
    for (int i = 0; i < n; ++i) {
      OwnedMessage message;
      message.topic = "t";
      message.partition = partition;
      message.key = std::to_string(i);
      message.payload = "p";
      message.headers = {{"message-id", std::to_string(partition) + "-" + std::to_string(i)}};
      broker->produce(message);
    }
  }
  /// An owner that dies while these messages run.
  void die_of(int partition, const std::vector<Offset>& offsets, bool alone) {
    const TopicPartition at{"t", partition};
    const Fence fence = inbox->claim_partitions(config().group(), {&at, 1}, 1s).front().fence;
    inbox->trials()->take_over(fence, 0);
    inbox->trials()->begin(fence, offsets, alone);
  }
  static Config config() {
    Config c;
    c.kafka = {{"group.id", "g"}};
    c.consumer.commit_interval = 20ms;
    c.consumer.workers = 4;
    return c;
  }
  bool all_settled() {
    std::map<int, Offset> ends;
    for (const auto& record : broker->records("t")) ends[record.partition] = record.offset + 1;
    for (const auto& [partition, end] : ends) {
      if (broker->committed({"t", partition}) != end) return false;
    }
    return true;
  }
  bool is_clean(int partition) {
    const TopicPartition at{"t", partition};
    return inbox->claim_partitions(config().group(), {&at, 1}, 1s).front().is_clean;
  }
  std::vector<ports::Suspect> suspects(int partition = 0) {
    const TopicPartition at{"t", partition};
    return inbox->trials()->take_over(inbox->claim_partitions("g", {&at, 1}, 1s).front().fence, 0);
  }
  /// Sets the offset that the group has committed, as an operator would, or a crash before the commit.
  void commit_lower(const TopicPartition& at, Offset offset) {
    struct Nothing final : ports::AssignmentListener {
      std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition>) override { return {}; }
      void on_revoked(std::span<const TopicPartition>, bool) override {}
    } nothing;
    const auto consumer = broker->open_consumer();
    const std::vector<std::string> topics{at.topic};
    consumer->subscribe(topics, nothing);
    const ports::OffsetCommit lower{at, offset};
    EXPECT_TRUE(eventually([&] {
      consumer->poll(1ms);
      consumer->commit({&lower, 1}, true);
      return broker->committed(at) == offset;
    }));
    consumer->close();
  }
  /// Runs until all messages are settled, then stops.
  void run(Pipeline pipeline) {
    Consumer app(config(), Backends{broker, inbox});
    app.topic("t", std::move(pipeline)).handle_signals(false).logger(logger);
    std::thread thread([&] { app.run(); });
    EXPECT_TRUE(eventually([&] { return all_settled(); })) << text.str();
    app.stop();
    thread.join();
  }
  std::string header(const OwnedMessage& message, const std::string& name) {
    for (const auto& header : message.headers) {
      if (header.name == name) return header.value.value_or("");
    }
    return "none";
  }

  std::shared_ptr<MemoryBroker> broker = std::make_shared<MemoryBroker>("g");
  std::shared_ptr<MemoryInbox> inbox = std::make_shared<MemoryInbox>();
  test::CapturedLog text;
  std::shared_ptr<spdlog::logger> logger = std::make_shared<spdlog::logger>("test", text.sink());
};

/// The messages that run, and the messages that run at the same time.
struct Runs {
  void operator()(const Message& message, const Context& context) {
    const std::string place = std::to_string(message.partition()) + "-" + std::to_string(message.offset());
    {
      const std::lock_guard lock(mutex);
      running.insert(place);
      attempts[place] = context.attempt();
      for (const auto& other : running) {
        beside[place].insert(other);
        beside[other].insert(place);
      }
    }
    std::this_thread::sleep_for(1ms);
    const std::lock_guard lock(mutex);
    running.erase(place);
  }
  std::mutex mutex;
  std::set<std::string> running;
  std::map<std::string, int> attempts;
  std::map<std::string, std::set<std::string>> beside;
};

Pipeline in_mode(Mode mode, Runs& runs) {
  const auto handler = [&runs](const Message& message, Context& context) { runs(message, context); };
  switch (mode) {
    case Mode::transactional: return handler | transactional() | ordered_by(Order::none) | batch(2);
    case Mode::leased: return handler | leased(5s) | ordered_by(Order::none) | batch(2);
    case Mode::by_offset: return handler | by_offset() | batch(2);
    case Mode::numbered: break;
    case Mode::at_least_once: return handler | limit(8) | ordered_by(Order::none) | batch(2);
  }
  throw std::logic_error("these tests have no producers that number their messages");
}

constexpr Mode kModes[] = {Mode::transactional, Mode::leased, Mode::by_offset, Mode::at_least_once};

TEST_F(SuspectsTest, run_while_nothing_else_does_in_each_mode) {
  for (const Mode mode : kModes) {
    broker = std::make_shared<MemoryBroker>("g");
    inbox = std::make_shared<MemoryInbox>();
    broker->create_topic("t", 2);
    broker->create_topic("t.dlq", 1);
    publish(0, 40);
    publish(1, 40);
    die_of(0, {5, 6}, false);
    die_of(0, {5}, true);
    die_of(1, {7}, false);
    Runs runs;
    run(in_mode(mode, runs) | retry(exponential{1ms, 3}) | dead_letter());
    const int which = static_cast<int>(mode);
    EXPECT_THAT(runs.beside["0-5"], ElementsAre("0-5")) << which;
    EXPECT_THAT(runs.beside["0-6"], ElementsAre("0-6")) << which;
    EXPECT_THAT(runs.beside["1-7"], ElementsAre("1-7")) << which;
    EXPECT_EQ(runs.attempts["0-5"], 2) << "the death counts";
    EXPECT_EQ(runs.attempts["0-6"], 1) << "that another one may have caused does not";
    EXPECT_EQ(runs.attempts.size(), 80U);
    EXPECT_TRUE(is_clean(0) && is_clean(1)) << which << text.str();
    EXPECT_THAT(
        inbox->trials()->take_over(inbox->claim_partitions("g", std::vector{TopicPartition{"t", 0}}, 1s)[0].fence, 0),
        IsEmpty());
  }
}

TEST_F(SuspectsTest, that_kill_again_and_again_are_dead_letters_in_each_mode) {
  for (const Mode mode : kModes) {
    broker = std::make_shared<MemoryBroker>("g");
    inbox = std::make_shared<MemoryInbox>();
    broker->create_topic("t", 2);
    broker->create_topic("t.dlq", 1);
    publish(0, 20);
    for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
    Runs runs;
    run(in_mode(mode, runs) | retry(exponential{1ms, 3}) | dead_letter());
    EXPECT_EQ(runs.attempts.size(), 19U);
    EXPECT_FALSE(runs.attempts.contains("0-5"));
    const auto dead = broker->records("t.dlq");
    ASSERT_EQ(dead.size(), 1U) << text.str();
    EXPECT_EQ(header(dead[0], "turnstile-reason"), "killed_process");
    EXPECT_EQ(header(dead[0], "turnstile-attempts"), "3");
    EXPECT_THAT(text.str(), HasSubstr("t[0]@5: 3 processes have died while running only this message"));
    // In mode at_least_once, there is no row that `turnstile dlq replay` could use.
    const std::string error = header(dead[0], "turnstile-error");
    const std::string from_topic = "publish its record in the topic 't.dlq' to 't' again";
    EXPECT_EQ(error.find("turnstile dlq replay") == std::string::npos, mode == Mode::at_least_once) << error;
    EXPECT_EQ(error.find(from_topic) != std::string::npos, mode == Mode::at_least_once) << error;
    EXPECT_EQ(text.str().find(from_topic) != std::string::npos, mode == Mode::at_least_once) << text.str();
  }
}

/// The process lives when it gives its partitions up, and so does one that goes on with others.
TEST_F(SuspectsTest, that_outlast_a_stop_have_killed_nobody) {
  publish(0, 1);
  die_of(0, {0}, true);
  Config c = config();
  c.consumer.drain_timeout = 10ms;
  struct Door {
    std::atomic<bool> entered{false}, open{false};
  };
  const auto door = std::make_shared<Door>();
  Consumer app(c, Backends{broker, inbox});
  const auto slow = [door](const Message&, Context&) {
    door->entered = true;
    EXPECT_TRUE(eventually([&] { return door->open.load(); }, 30s));
  };
  // Without a transaction, which a claim would wait for.
  app.topic("t", Pipeline(slow) | limit(8) | dead_letter()).handle_signals(false).logger(logger);
  std::thread thread([&] { app.run(); });
  EXPECT_TRUE(eventually([&] { return door->entered.load(); }));
  app.stop();
  thread.join();
  EXPECT_THAT(text.str(), HasSubstr("handler_not_stopping"));
  EXPECT_THAT(suspects(), ElementsAre(ports::Suspect{0, 1})) << "only the process that died counts";
  door->open = true;
}

/// It may still die of that message.
TEST_F(SuspectsTest, that_outlast_a_rebalance_stay_on_trial_until_they_end_or_the_process_stops) {
  for (const bool stops : {false, true}) {
    broker = std::make_shared<MemoryBroker>("g");
    inbox = std::make_shared<MemoryInbox>();
    broker->create_topic("t", 2);
    broker->create_topic("t.dlq", 1);
    publish(1, 1);
    die_of(1, {0}, true);
    Config c = config();
    c.consumer.drain_timeout = 10ms;
    const auto entered = std::make_shared<std::atomic<bool>>(false), open = std::make_shared<std::atomic<bool>>(false);
    Consumer app(c, Backends{broker, inbox});
    const auto slow = [entered, open](const Message&, Context&) {
      *entered = true;
      EXPECT_TRUE(eventually([&] { return open->load(); }, 30s));
    };
    app.topic("t", Pipeline(slow) | handler_timeout(1ms) | limit(8) | dead_letter())
        .handle_signals(false)
        .logger(logger);
    std::thread thread([&] { app.run(); });
    EXPECT_TRUE(eventually([&] { return entered->load(); }));
    struct Other final : ports::AssignmentListener {
      std::vector<TopicPartitionOffset> on_assigned(std::span<const TopicPartition> of) override {
        has_some = !of.empty();
        return {};
      }
      void on_revoked(std::span<const TopicPartition>, bool) override {}
      bool has_some = false;
    } listener;
    const auto other = broker->open_consumer();
    const auto from = text.str().size();
    other->subscribe({"t"}, listener);  // without a poll, the stop meets a process without partitions
    EXPECT_TRUE(eventually([&] { return stops || (other->poll(1ms), listener.has_some); }));
    EXPECT_TRUE(eventually([&] { return text.str().find("revoked 2 partitions", from) != std::string::npos; }));
    EXPECT_THAT(text.str(), HasSubstr("handler_not_stopping"));
    if (!stops) {
      *open = true;
      EXPECT_TRUE(eventually([&] { return suspects(1).empty(); })) << "it has ended, and took effect";
    }
    app.stop();
    thread.join();
    if (stops) {  // for longer than a trial lasts that nobody renews
      EXPECT_FALSE(eventually([&] { return suspects(1) != std::vector{ports::Suspect{0, 1}}; }, 1500ms)) << "it ended";
    }
    *open = true;
  }
}

/// With dead_letter() or parked, after the last owner stopped or died.
TEST_F(SuspectsTest, that_were_buried_do_not_run_when_they_are_read_again) {
  for (const Mode mode : {Mode::transactional, Mode::leased, Mode::by_offset}) {
    for (const bool dies : {false, true}) {
      const std::string which = std::to_string(static_cast<int>(mode)) + (dies ? ", died" : ", stopped");
      broker = std::make_shared<MemoryBroker>("g");
      inbox = std::make_shared<MemoryInbox>();
      broker->create_topic("t", 2);
      broker->create_topic("t.dlq", 1);
      publish(0, 20);
      for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
      Runs runs;
      run(in_mode(mode, runs) | retry(exponential{1ms, 3}) | dead_letter());
      ASSERT_EQ(broker->records("t.dlq").size(), 1U) << which;
      commit_lower({"t", 0}, 3);
      if (dies) die_of(0, {7}, false);
      publish(0, 1);
      run(in_mode(mode, runs) | retry(exponential{1ms, 3}) | dead_letter());
      EXPECT_FALSE(runs.attempts.contains("0-5")) << which;
      EXPECT_EQ(broker->records("t.dlq").size(), 1U) << which;
      EXPECT_THAT(text.str(), HasSubstr("starting at Kafka's offset 3, below the database's watermark 20"));
      EXPECT_THAT(text.str(), HasSubstr("is a dead letter already: not run"));
    }
  }
}

/// The row of the dead letter may have been deleted.
TEST_F(SuspectsTest, are_counted_below_the_watermark_where_reading_starts_there) {
  publish(0, 20);
  Runs runs;
  run(in_mode(Mode::transactional, runs) | retry(exponential{1ms, 3}) | dead_letter());
  commit_lower({"t", 0}, 3);
  for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
  run(in_mode(Mode::transactional, runs) | retry(exponential{1ms, 3}) | dead_letter());
  EXPECT_THAT(text.str(), HasSubstr("t[0]@5: 3 processes have died while running only this message"));
}

/// In mode at_least_once, there is no row of the dead letter.
TEST_F(SuspectsTest, that_were_buried_without_a_row_are_known_by_their_deaths) {
  publish(0, 20);
  for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
  Runs runs;
  run(in_mode(Mode::at_least_once, runs) | retry(exponential{1ms, 3}) | dead_letter());
  ASSERT_EQ(broker->records("t.dlq").size(), 1U) << text.str();
  commit_lower({"t", 0}, 3);
  die_of(0, {7}, false);
  run(in_mode(Mode::at_least_once, runs) | retry(exponential{1ms, 3}) | dead_letter());
  EXPECT_FALSE(runs.attempts.contains("0-5"));
  die_of(0, {7}, false);
  publish(0, 1);
  run(in_mode(Mode::at_least_once, runs) | retry(exponential{1ms, 3}) | dead_letter());
  EXPECT_THAT(suspects(), IsEmpty()) << "reading has passed them";
}

TEST_F(SuspectsTest, that_have_taken_effect_are_no_dead_letters) {
  publish(0, 6);
  for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
  inbox->insert(inbox->register_handler("t"), {MessageId::from("0-5"), 5});
  Runs runs;
  run(in_mode(Mode::transactional, runs) | retry(exponential{1ms, 3}) | dead_letter());
  EXPECT_EQ(runs.attempts.size(), 5U);
  EXPECT_THAT(broker->records("t.dlq"), IsEmpty());
}

/// Duplicates are settled without a permit. A suspect is not: only the end of its run removes it from the database.
TEST_F(SuspectsTest, that_have_taken_effect_are_removed_while_no_permit_is_to_be_had) {
  struct Duplicates final : Observer {
    void on_batch(const BatchReport& batch) noexcept override { seen += batch.duplicates; }
    std::atomic<std::int64_t> seen{0};
  };
  const auto duplicates = std::make_shared<Duplicates>();
  for (int i = 0; i < 6; ++i)
    inbox->insert(inbox->register_handler("t"), {MessageId::from("0-" + std::to_string(i)), i});
  die_of(0, {2, 3}, false);
  publish(1, 1);
  run([&](const Message&) {
    publish(0, 6);
    EXPECT_TRUE(eventually([&] { return duplicates->seen >= 4; })) << "they waited for the permit";
  } | transactional() |
      ordered_by(Order::none) | limit(1) | batch(1) | observe(duplicates));
  EXPECT_EQ(duplicates->seen, 6);
  EXPECT_THAT(suspects(), IsEmpty());
}

TEST_F(SuspectsTest, wait_for_the_store_while_others_run_without_it) {
  for (const Order order : {Order::key, Order::none}) {
    broker = std::make_shared<MemoryBroker>("g");
    inbox = std::make_shared<MemoryInbox>();
    broker->create_topic("t", 2);
    die_of(0, {2, 3}, false);
    publish(1, 1);
    Runs runs;
    const auto runs_of_partition_0 = [&] {
      const std::lock_guard lock(runs.mutex);
      return runs.attempts;
    };
    const auto handler = [&](const Message& message, const Context& context) {
      if (message.partition() == 0) return runs(message, context);
      inbox->set_unavailable(true);
      publish(0, 6);
      EXPECT_TRUE(eventually([&] { return runs_of_partition_0().size() == 4; })) << text.str();
      EXPECT_FALSE(runs_of_partition_0().contains("0-2") || runs_of_partition_0().contains("0-3"));
      inbox->set_unavailable(false);
    };
    run(handler | leased(5s) | on_store_down(StoreDownPolicy::run) | ordered_by(order));
    EXPECT_EQ(runs.attempts.size(), 6U);
    EXPECT_THAT(suspects(), IsEmpty());
  }
}

TEST_F(SuspectsTest, are_parked_without_a_dead_letter_topic) {
  publish(0, 6);
  for (int i = 0; i < 5; ++i) die_of(0, {5}, true);
  Runs runs;
  run(in_mode(Mode::transactional, runs));
  ASSERT_EQ(inbox->dead().size(), 1U);
  EXPECT_EQ(inbox->dead()[0].reason, DeadReason::killed_process);
}

/// Normal operation pays nothing for this.
TEST_F(SuspectsTest, cost_nothing_while_owners_release_their_partitions) {
  class Counting final : public ports::Trials {
   public:
    explicit Counting(std::shared_ptr<ports::Trials> inner) : inner_(std::move(inner)) {}
    std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
      ++calls;
      return inner_->take_over(fence, first);
    }
    void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
      ++calls;
      inner_->begin(fence, offsets, alone);
    }
    void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) override {
      ++calls;
      inner_->end(fence, offsets, settled);
    }
    void release(std::span<const Release> partitions) override { inner_->release(partitions); }
    std::atomic<int> calls = 0;

   private:
    const std::shared_ptr<ports::Trials> inner_;
  };
  class CountingStore final : public test::ForwardingStore {
   public:
    CountingStore(std::shared_ptr<ports::Store> inner, std::shared_ptr<ports::Trials> trials)
        : ForwardingStore(std::move(inner)), trials_(std::move(trials)) {}
    std::shared_ptr<ports::Trials> trials() override { return trials_; }

   private:
    const std::shared_ptr<ports::Trials> trials_;
  };
  const auto counting = std::make_shared<Counting>(inbox->trials());
  for (const bool dies : {false, false, true}) {
    publish(0, 20);
    if (dies) die_of(0, {39}, false);
    counting->calls = 0;
    Consumer app(config(), Backends{broker, std::make_shared<CountingStore>(inbox, counting)});
    app.topic("t", [](const Message&, Context&) {} | transactional()).handle_signals(false).logger(logger);
    std::thread thread([&] { app.run(); });
    EXPECT_TRUE(eventually([&] { return all_settled(); })) << text.str();
    app.stop();
    thread.join();
    EXPECT_EQ(counting->calls > 0, dies);
  }
}

// --- the program's own poll loop -------------------------------------------------------------------------------------

TEST_F(SuspectsTest, of_a_poll_loop_are_dead_letters_in_the_end) {
  for (const Mode mode : kModes) {
    inbox = std::make_shared<MemoryInbox>();
    broker = std::make_shared<MemoryBroker>("g");
    broker->create_topic("t", 2);
    broker->create_topic("t.dlq", 1);
    publish(0, 8);
    for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
    die_of(0, {6}, true);
    Runs runs;
    {
      PollLoop loop(config(), Backends{broker, inbox});
      loop.topic("t", in_mode(mode, runs) | retry(exponential{1ms, 3}) | dead_letter()).logger(logger);
      for (const auto& record : broker->records("t")) {
        EXPECT_EQ(loop.handle(Message(record)), record.offset == 5 ? Settled::dead_letter : Settled::done);
      }
      EXPECT_EQ(runs.attempts["0-6"], 2);
      EXPECT_FALSE(runs.attempts.contains("0-5"));
      if (mode == Mode::transactional) loop.revoked({"t", 0});
    }
    EXPECT_FALSE(is_clean(0)) << "fewer messages have run than the last owner can have had in hand";
  }
}

TEST_F(SuspectsTest, of_a_poll_loop_that_were_buried_do_not_run_when_they_are_read_again) {
  publish(0, 8);
  for (int i = 0; i < 3; ++i) die_of(0, {5}, true);
  Runs runs;
  for (const bool again : {false, true}) {
    PollLoop loop(config(), Backends{broker, inbox});
    loop.topic("t", in_mode(Mode::transactional, runs) | retry(exponential{1ms, 3}) | dead_letter()).logger(logger);
    for (const auto& record : broker->records("t")) {
      EXPECT_EQ(loop.handle(Message(record)), record.offset == 5 ? Settled::dead_letter
                                              : again            ? Settled::duplicate
                                                                 : Settled::done);
    }
  }
  EXPECT_FALSE(runs.attempts.contains("0-5"));
  EXPECT_EQ(broker->records("t.dlq").size(), 1U);
}

TEST_F(SuspectsTest, are_over_for_a_poll_loop_after_a_window) {
  publish(0, 8);
  die_of(0, {5}, false);
  Runs runs;
  Config small = config();
  small.consumer.window = 6;
  {
    PollLoop loop(small, Backends{broker, inbox});
    loop.topic("t", in_mode(Mode::transactional, runs)).logger(logger);
    for (const auto& record : broker->records("t")) loop.handle(Message(record));
  }
  EXPECT_TRUE(is_clean(0));
}

}  // namespace
}  // namespace turnstile::detail
