// The spans that a tracer gets of messages whose sender records their trace.

#include "turnstile/tracer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <mutex>

#include "delivery/unit_trace.hpp"
#include "tests/support/eventually.hpp"
#include "tests/unit/engine/engine_fixture.hpp"

namespace turnstile {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using Step = SpanReport::Step;
using test::Door;
using test::eventually;

/// A span with texts of its own.
struct Kept {
  Step step;
  TraceContext context;
  std::array<std::uint8_t, 8> parent;
  std::int64_t messages;
  Offset offset;
  std::string error;
  std::vector<TraceContext> links;
  std::chrono::nanoseconds took;
};

class KeepingTracer final : public Tracer {
 public:
  void on_span(const SpanReport& span) noexcept override {
    const std::lock_guard lock(mutex_);
    spans_.push_back({span.step,
                      span.context,
                      span.parent,
                      span.messages,
                      span.offset,
                      std::string(span.error),
                      {span.links.begin(), span.links.end()},
                      span.took});
  }
  std::vector<Kept> of(Step step) const {
    const std::lock_guard lock(mutex_);
    std::vector<Kept> found;
    for (const Kept& span : spans_) {
      if (span.step == step) found.push_back(span);
    }
    return found;
  }
  std::size_t count() const {
    const std::lock_guard lock(mutex_);
    return spans_.size();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<Kept> spans_;
};

class TracerTest : public test::EngineTest {
 protected:
  /// A trace of its own for each number; the last digit of its flags.
  static std::string traceparent(int number, int flags = 1) {
    return "00-0000000000000000000000000000000" + std::to_string(number) + "-000000000000000" + std::to_string(number) +
           "-0" + std::to_string(flags);
  }
  void publish(int number, const std::optional<std::string>& trace) {
    OwnedMessage message;
    message.topic = "t";
    message.headers = {{"message-id", "m" + std::to_string(number)}};
    if (trace) message.headers.push_back({"traceparent", *trace});
    broker->produce(message);
  }
  void run(Pipeline pipeline, int workers = 0) {
    Config settings = config();
    if (workers > 0) settings.consumer.workers = workers;
    app = consumer("t", std::move(pipeline), std::move(settings));
    app->trace(tracer);
    thread = start(*app);
  }
  bool settled() {
    return eventually([&] { return all_committed("t", 1); });
  }
  void TearDown() override {
    if (app) app->stop();
    if (thread.joinable()) thread.join();
  }

  std::shared_ptr<KeepingTracer> tracer = std::make_shared<KeepingTracer>();
  std::unique_ptr<Consumer> app;
  std::thread thread;
};

TEST_F(TracerTest, gets_a_span_of_each_step_in_the_trace_of_the_message) {
  topic("t", 1);
  topic("events", 1);
  publish(1, traceparent(1));
  std::optional<TraceContext> seen;
  run(Pipeline([&](const Message&, Context& context) {
        seen = context.trace();
        OwnedMessage event;
        event.topic = "events";
        context.publish(event);
      }) |
      transactional());
  ASSERT_TRUE(settled()) << log_text();
  const auto sender = *parse_traceparent(traceparent(1));
  for (const Step step : {Step::receive, Step::claim, Step::handler, Step::commit}) {
    const auto spans = tracer->of(step);
    ASSERT_EQ(spans.size(), 1U) << to_text(step);
    EXPECT_EQ(spans[0].context.trace_id, sender.trace_id);
    EXPECT_NE(spans[0].context.span_id, sender.span_id);
    EXPECT_EQ(spans[0].parent, sender.span_id);
    EXPECT_EQ(spans[0].messages, 1);
    EXPECT_EQ(spans[0].error, "");
    EXPECT_THAT(spans[0].links, IsEmpty());
    EXPECT_GE(spans[0].took, 0ns);
  }
  EXPECT_THAT(tracer->of(Step::wait_for_permit), IsEmpty()) << "the topic has no limit";
  ASSERT_TRUE(seen);
  EXPECT_EQ(*seen, tracer->of(Step::handler)[0].context) << "what the handler calls belongs to its span";
  ASSERT_TRUE(broker->wait_records("events", 1, 20s));
  const auto events = broker->records("events");
  EXPECT_EQ(trace_of(Message(events[0])), seen);
}

TEST_F(TracerTest, gets_nothing_of_a_trace_that_is_not_recorded) {
  topic("t", 1);
  publish(1, traceparent(1, 0));
  publish(2, std::nullopt);
  publish(3, "garbage");
  std::vector<std::optional<TraceContext>> seen;
  run(Pipeline([&](const Message&, Context& context) { seen.push_back(context.trace()); }) | transactional());
  ASSERT_TRUE(settled()) << log_text();
  EXPECT_EQ(tracer->count(), 0U);
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[0], parse_traceparent(traceparent(1, 0))) << "it is passed on unchanged";
  EXPECT_EQ(seen[1], std::nullopt);
  EXPECT_EQ(seen[2], std::nullopt);
}

TEST_F(TracerTest, gets_one_span_of_a_batch_with_links_to_all_its_traces) {
  std::vector<OwnedMessage> owned(4);
  owned[1].headers = {{"traceparent", traceparent(2, 0)}};
  owned[2].headers = {{"traceparent", traceparent(3)}};
  owned[3].headers = {{"traceparent", traceparent(4)}};
  for (std::size_t i = 0; i < owned.size(); ++i) owned[i].offset = static_cast<Offset>(10 + i);
  const std::vector<Message> messages(owned.begin(), owned.end());
  std::vector<detail::Work> works;
  for (std::size_t i = 0; i < messages.size(); ++i) works.push_back({.message = &messages[i], .seq = i});
  const auto plan = detail::plan_topic("t", {});
  const auto unit = detail::UnitTrace::of(tracer.get(), plan, 0, works);
  ASSERT_TRUE(unit);
  { const detail::UnitTrace::Span span(unit.get(), Step::handler, messages); }
  const auto spans = tracer->of(Step::handler);
  ASSERT_EQ(spans.size(), 1U);
  EXPECT_EQ(spans[0].context.trace_id, parse_traceparent(traceparent(3))->trace_id) << "the first that is recorded";
  EXPECT_EQ(spans[0].messages, 4);
  EXPECT_EQ(spans[0].offset, 10);
  EXPECT_THAT(spans[0].links, ElementsAre(*parse_traceparent(traceparent(2, 0)), *parse_traceparent(traceparent(3)),
                                          *parse_traceparent(traceparent(4))));
  { const detail::UnitTrace::Span span(unit.get(), Step::handler, std::span(messages).last(1)); }
  const auto single = tracer->of(Step::handler).back();
  EXPECT_EQ(single.parent, parse_traceparent(traceparent(4))->span_id);
  EXPECT_NE(single.context.span_id, single.parent) << "a call with only one of them is a span of its own";
  EXPECT_FALSE(detail::UnitTrace::of(tracer.get(), plan, 0, std::span(works).first(2))) << "none is recorded";
  EXPECT_FALSE(detail::UnitTrace::of(nullptr, plan, 0, works));
}

TEST_F(TracerTest, is_told_why_a_handler_failed_and_of_each_attempt) {
  topic("t", 1);
  publish(1, traceparent(1));
  run(Pipeline([](const Message&, Context& context) {
        if (context.attempt() == 1) throw std::runtime_error("no money");
      }) |
      transactional() | retry(exponential{1ms, 3}));
  ASSERT_TRUE(settled()) << log_text();
  const auto spans = tracer->of(Step::handler);
  ASSERT_EQ(spans.size(), 2U);
  EXPECT_THAT(spans[0].error, ::testing::HasSubstr("no money"));
  EXPECT_EQ(spans[1].error, "");
  EXPECT_NE(spans[0].context.span_id, spans[1].context.span_id);
}

TEST_F(TracerTest, gets_the_spans_of_each_mode) {
  topic("t", 1);
  publish(1, traceparent(1));
  run(Pipeline([](const Message&) {}) | leased());
  ASSERT_TRUE(settled()) << log_text();
  EXPECT_EQ(tracer->of(Step::claim).size(), 1U);
  EXPECT_EQ(tracer->of(Step::handler).size(), 1U);
  EXPECT_EQ(tracer->of(Step::commit).size(), 1U);
}

TEST_F(TracerTest, gets_the_handler_where_there_is_no_store) {
  topic("t", 1);
  publish(1, traceparent(1));
  run(Pipeline([](const Message&) {}));
  ASSERT_TRUE(settled()) << log_text();
  EXPECT_EQ(tracer->of(Step::handler).size(), 1U);
  EXPECT_THAT(tracer->of(Step::claim), IsEmpty());
}

TEST_F(TracerTest, gets_the_wait_for_a_permit) {
  topic("t", 2);
  Door door;
  for (int partition = 0; partition < 2; ++partition) {
    OwnedMessage message;
    message.topic = "t";
    message.partition = partition;
    message.headers = {{"message-id", std::to_string(partition)}, {"traceparent", traceparent(partition + 1)}};
    broker->produce(message);
  }
  std::atomic<int> begun{0};
  run(Pipeline([&](const Message&) {
        if (++begun == 1) door.wait();
      }) | limit(1),
      2);
  ASSERT_TRUE(eventually([&] {
    const auto limiters = app->status().limiters;
    return begun == 1 && limiters.size() == 1 && limiters[0].state.waiting == 1;
  }));
  door.open();
  ASSERT_TRUE(eventually([&] { return all_committed("t", 2); })) << log_text();
  const auto waits = tracer->of(Step::wait_for_permit);
  ASSERT_EQ(waits.size(), 1U);
  EXPECT_GT(waits[0].took, 0ns);
}

}  // namespace
}  // namespace turnstile
