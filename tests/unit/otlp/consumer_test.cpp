// A consumer whose spans go to a collector: which messages get spans, and how these belong together.

#include <gmock/gmock.h>

#include <set>

#include "tests/unit/engine/engine_fixture.hpp"
#include "tests/unit/otlp/collector.hpp"

namespace turnstile::otlp::test {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class OtlpConsumerTest : public turnstile::test::EngineTest {
 protected:
  static std::string traceparent(int number) {
    const std::string digits = std::to_string(10 + number);
    return "00-000000000000000000000000000000" + digits + "-00000000000000" + digits + "-01";
  }
  void publish(int number, const std::optional<std::string>& trace) {
    OwnedMessage message;
    message.topic = "t";
    message.headers = {{"message-id", "m" + std::to_string(number)}};
    if (trace) message.headers.push_back({"traceparent", *trace});
    broker->produce(message);
  }
  /// Runs the pipeline over all of the topic, and returns once all spans have arrived.
  void run(Pipeline pipeline, double sample) {
    TracingSettings settings;
    settings.endpoint = collector.url();
    settings.sample = sample;
    auto app = consumer("t", std::move(pipeline), config());
    auto tracer = std::make_shared<OtlpTracer>(settings, Resource{"s", "i", "g"},
                                               std::make_shared<spdlog::logger>("otlp", trace_log.sink()));
    app->trace(tracer);
    auto thread = start(*app);
    EXPECT_TRUE(eventually([&] { return all_committed("t", 1); })) << log_text();
    EXPECT_TRUE(eventually([&] { return app->status().spans.has_value(); }));
    app->stop();
    thread.join();
    app.reset();
    EXPECT_EQ(tracer.use_count(), 1) << "the end of the consumer sends the last spans";
    tracer.reset();
    EXPECT_EQ(trace_log.str(), "");
    for (const wire::Span& span : collector.spans())
      by_step[span.name().substr(0, span.name().rfind(' '))].push_back(span);
  }

  const Collector collector;
  turnstile::test::CapturedLog trace_log;
  std::map<std::string, std::vector<wire::Span>> by_step;
};

TEST_F(OtlpConsumerTest, sends_nothing_of_a_garbage_traceparent) {
  topic("t", 1);
  int number = 0;
  for (const char* garbage : {"garbage", "", "ff-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01",
                              "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
                              "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                              "00-0AF7651916CD43DD8448EB211C80319C-00f067aa0ba902b7-01",
                              "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01-more",
                              "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00"})
    publish(number++, garbage);
  publish(number, std::nullopt);
  run(Pipeline([](const Message&) {}) | transactional(), 0);
  EXPECT_EQ(collector.spans().size(), 0U);
}

TEST_F(OtlpConsumerTest, sends_the_steps_of_a_message_below_the_span_that_has_sent_it) {
  topic("t", 1);
  publish(1, traceparent(1));
  run(Pipeline([](const Message&) {}) | transactional(), 0);
  ASSERT_EQ(collector.spans().size(), 4U);
  for (const char* step : {"receive", "claim", "handler", "commit"}) {
    ASSERT_EQ(by_step[step].size(), 1U) << step;
    EXPECT_EQ(by_step[step][0].parent_span_id(), std::string(7, '\0') + '\x11');
    EXPECT_EQ(by_step[step][0].trace_id(), std::string(15, '\0') + '\x11');
    EXPECT_EQ(by_step[step][0].flags(), 0x301U);
  }
}

TEST_F(OtlpConsumerTest, begins_a_trace_with_a_message_that_has_none) {
  topic("t", 1);
  publish(1, std::nullopt);
  publish(2, "garbage");
  std::vector<std::optional<TraceContext>> seen;
  run(Pipeline([&](const Message&, Context& context) { seen.push_back(context.trace()); }) | transactional() | batch(1),
      1);
  ASSERT_EQ(by_step["process"].size(), 2U);
  std::set<std::string> traces, handlers;
  for (const wire::Span& root : by_step["process"]) {
    EXPECT_EQ(root.parent_span_id(), "");
    EXPECT_TRUE(traces.insert(root.trace_id()).second) << "each message has a trace of its own";
    int steps = 0;
    for (const wire::Span& span : collector.spans()) {
      if (span.trace_id() != root.trace_id() || span.span_id() == root.span_id()) continue;
      ++steps;
      EXPECT_EQ(span.parent_span_id(), root.span_id()) << span.name();
      EXPECT_EQ(span.flags(), 0x101U);
      EXPECT_GE(span.start_time_unix_nano() + 1'000'000, root.start_time_unix_nano()) << span.name();
      EXPECT_LE(span.end_time_unix_nano(), root.end_time_unix_nano() + 1'000'000) << span.name();
    }
    EXPECT_EQ(steps, 4);
  }
  for (const wire::Span& span : by_step["handler"]) handlers.insert(span.span_id());
  ASSERT_EQ(seen.size(), 2U);
  for (const auto& trace : seen) {
    ASSERT_TRUE(trace);
    EXPECT_TRUE(handlers.contains({trace->span_id.begin(), trace->span_id.end()}))
        << "what the handler calls belongs to it";
    EXPECT_TRUE(trace->is_sampled());
  }
}

TEST_F(OtlpConsumerTest, sends_links_to_all_messages_of_a_batch_handler) {
  topic("t", 1);
  for (int number = 1; number <= 3; ++number) publish(number, traceparent(number));
  publish(4, std::nullopt);
  std::size_t largest = 0;
  run(Pipeline([&](std::span<const Message> messages, Context&) { largest = std::max(largest, messages.size()); }) |
          transactional() | batch(10),
      0);
  ASSERT_EQ(largest, 4U) << "all were there when the consumer began";
  ASSERT_EQ(by_step["handler"].size(), 1U);
  const wire::Span& handler = by_step["handler"][0];
  std::vector<int> linked;
  for (const auto& link : handler.links()) linked.push_back(link.trace_id()[15]);
  EXPECT_THAT(linked, ElementsAre(0x11, 0x12, 0x13));
}

}  // namespace
}  // namespace turnstile::otlp::test
