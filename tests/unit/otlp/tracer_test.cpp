// What a collector gets, and what the tracer does with its answers.

#include "turnstile/otlp/tracer.hpp"

#include <gmock/gmock.h>

#include "http_sender.hpp"
#include "tests/unit/otlp/collector.hpp"

namespace turnstile::otlp::test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Step = SpanReport::Step;

std::map<std::string, std::string> attributes(const wire::Span& span) {
  std::map<std::string, std::string> all;
  for (const auto& pair : span.attributes())
    all[pair.key()] =
        pair.value().has_int_value() ? std::to_string(pair.value().int_value()) : pair.value().string_value();
  return all;
}

class OtlpTracerTest : public OtlpTest {};

TEST_F(OtlpTracerTest, sends_each_span_with_its_ids_times_and_attributes) {
  const Collector collector;
  start(collector.url(), quick());
  SpanReport span = report();
  span.context.state = "vendor=1";
  span.error = "no money";
  tracer->on_span(span);
  ASSERT_TRUE(eventually([&] { return collector.spans().size() == 1; })) << log.str();
  const wire::Span got = collector.spans()[0];
  EXPECT_EQ(got.trace_id(), "\x0a\xf7\x65\x19\x16\xcd\x43\xdd\x84\x48\xeb\x21\x1c\x80\x31\x9c");
  EXPECT_EQ(got.span_id(), std::string("\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", 8));
  EXPECT_EQ(got.parent_span_id(), "\x01\x02\x03\x04\x05\x06\x07\x08");
  EXPECT_EQ(got.trace_state(), "vendor=1");
  EXPECT_EQ(got.flags(), 0x301U) << "sampled, and its parent is of another process";
  EXPECT_EQ(got.name(), "handler payments");
  EXPECT_EQ(got.kind(), wire::Span::SPAN_KIND_CONSUMER);
  EXPECT_EQ(got.start_time_unix_nano(), 1'700'000'000'000'000'000U);
  EXPECT_EQ(got.end_time_unix_nano(), 1'700'000'000'001'500'000U);
  EXPECT_EQ(got.status().code(), wire::Status::STATUS_CODE_ERROR);
  EXPECT_EQ(got.status().message(), "no money");
  EXPECT_EQ(attributes(got), (std::map<std::string, std::string>{{"messaging.system", "kafka"},
                                                                 {"messaging.destination.name", "payments"},
                                                                 {"messaging.destination.partition.id", "3"},
                                                                 {"messaging.consumer.group.name", "billing-group"},
                                                                 {"messaging.kafka.offset", "1042"},
                                                                 {"messaging.operation.name", "handler"},
                                                                 {"messaging.operation.type", "process"},
                                                                 {"turnstile.handler", "charge"}}));
  auto resource = collector.resource();
  EXPECT_EQ(resource["service.name"], "billing");
  EXPECT_EQ(resource["service.instance.id"], "billing@host1:7");
  EXPECT_EQ(resource["telemetry.sdk.name"], "turnstile");
  EXPECT_TRUE(eventually([&] { return counts().exported == 1 && counts().waiting == 0; }));
  EXPECT_EQ(counts().dropped, 0);
  EXPECT_THAT(log.str(), IsEmpty());
}

TEST_F(OtlpTracerTest, sends_the_first_span_of_a_trace_without_a_parent) {
  const Collector collector;
  start(collector.url(), quick());
  SpanReport span = report(Step::process);
  span.parent = {};
  span.is_parent_remote = false;
  tracer->on_span(span);
  ASSERT_TRUE(eventually([&] { return collector.spans().size() == 1; }));
  EXPECT_EQ(collector.spans()[0].parent_span_id(), "");
  EXPECT_EQ(collector.spans()[0].flags(), 0x101U);
  EXPECT_EQ(collector.spans()[0].status().code(), wire::Status::STATUS_CODE_UNSET);
}

TEST_F(OtlpTracerTest, sends_a_link_to_each_message_of_a_batch) {
  const Collector collector;
  start(collector.url(), quick());
  std::vector<TraceContext> links(500, report().context);
  for (std::size_t i = 0; i < links.size(); ++i) links[i].trace_id[15] = static_cast<std::uint8_t>(i % 250);
  links[7].state = "a=b";
  links[8].flags = 0;
  SpanReport span = report(Step::commit);
  span.messages = 500;
  span.links = links;
  tracer->on_span(span);
  ASSERT_TRUE(eventually([&] { return collector.spans().size() == 1; })) << log.str();
  const wire::Span got = collector.spans()[0];
  ASSERT_EQ(got.links_size(), 500);
  for (int i = 0; i < 500; ++i) {
    EXPECT_EQ(got.links(i).trace_id().size(), 16U);
    EXPECT_EQ(static_cast<unsigned char>(got.links(i).trace_id()[15]), i % 250);
    EXPECT_EQ(got.links(i).flags(), i == 8 ? 0U : 1U);
  }
  EXPECT_EQ(got.links(7).trace_state(), "a=b");
  EXPECT_EQ(attributes(got)["messaging.batch.message_count"], "500");
  EXPECT_EQ(attributes(got)["messaging.operation.type"], "settle");
}

/// A collector refuses a request with one text that is not UTF-8, and with it the spans of other messages.
TEST_F(OtlpTracerTest, replaces_bytes_that_are_not_utf8) {
  const Collector collector;
  start(collector.url(), quick());
  SpanReport span = report();
  const std::string error = "bad \xff\xfe\xc3 byte " + std::string(2'000, 'x');
  const std::vector<TraceContext> links{span.context};
  span.context.state = "vendor=\xff";
  span.handler = "h\xc3";
  span.error = error;
  span.links = links;
  tracer->on_span(span);
  ASSERT_TRUE(eventually([&] { return collector.spans().size() == 1; })) << log.str();
  const wire::Span got = collector.spans()[0];
  EXPECT_EQ(got.trace_state(), "") << "W3C: a tracestate that cannot be read is left out";
  EXPECT_EQ(attributes(got)["turnstile.handler"], "h?");
  EXPECT_THAT(got.status().message(), HasSubstr("bad ?\x3f\x3f byte xxx"));
  EXPECT_LE(got.status().message().size(), 1'024U);
}

TEST_F(OtlpTracerTest, sends_the_headers_to_the_path_below_the_endpoint) {
  const Collector collector;
  TracingSettings settings;
  settings.headers = Secret("authorization=Bearer%20s3cret, x-tenant = 7");
  start(collector.url() + "/otel/", quick(), settings);
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return collector.requests().size() == 1; }));
  const auto request = collector.requests()[0];
  EXPECT_EQ(request.path, "/otel/v1/traces");
  EXPECT_EQ(request.get_header_value("Authorization"), "Bearer s3cret");
  EXPECT_EQ(request.get_header_value("x-tenant"), "7");
  EXPECT_EQ(request.get_header_value("Content-Type"), "application/x-protobuf");
  EXPECT_EQ(request.get_header_value("Host"), "127.0.0.1:" + std::to_string(collector.port()));
}

TEST_F(OtlpTracerTest, sends_a_request_when_there_is_enough_for_one_or_after_the_interval) {
  const Collector collector;
  Tuning tuning = quick();
  tuning.batch_spans = 10;
  tuning.interval = 1h;
  start(collector.url(), tuning);
  for (int i = 0; i < 25; ++i) tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return collector.spans().size() == 20; }));
  EXPECT_TRUE(eventually([&] { return counts().waiting == 5; }));
  tracer.reset();
  EXPECT_EQ(collector.spans().size(), 25U) << "the destructor sends the rest";

  tuning.interval = 1ms;
  start(collector.url(), tuning);
  tracer->on_span(report());
  EXPECT_TRUE(eventually([&] { return collector.spans().size() == 26; }));
}

TEST_F(OtlpTracerTest, drops_and_counts_what_the_queue_has_no_room_for) {
  std::atomic<bool> open{false};
  const Collector collector(
      [&](const httplib::Request&, httplib::Response&) { EXPECT_TRUE(eventually([&] { return open.load(); })); });
  Tuning tuning = quick();
  tuning.queue_spans = 100;
  start(collector.url(), tuning);
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return collector.requests().size() == 1; }));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 1'000; ++i) tracer->on_span(report());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 5s) << "nothing waits for a collector that does not answer";
  EXPECT_EQ(counts().dropped, 900);
  EXPECT_EQ(counts().waiting, 101);
  open = true;
  EXPECT_TRUE(eventually([&] { return counts().exported == 101; }));
  tracer.reset();
  EXPECT_THAT(log.str(), HasSubstr("the queue of spans was full, and 900 were dropped"));
}

TEST_F(OtlpTracerTest, bounds_the_memory_of_what_waits) {
  Tuning tuning = quick();
  tuning.batch_spans = 1'000;
  tuning.interval = 1h;
  tuning.queue_bytes = 1'000'000;
  tuning.flush = 0ms;
  start("http://127.0.0.1:9", tuning);
  const std::vector<TraceContext> links(500, TraceContext{.state = std::string(500, 'x')});
  SpanReport span = report();
  span.links = links;
  for (int i = 0; i < 10; ++i) tracer->on_span(span);
  EXPECT_GE(counts().waiting, 1);
  EXPECT_LE(counts().waiting, 4);
  EXPECT_EQ(counts().waiting + counts().dropped, 10);
}

TEST_F(OtlpTracerTest, counts_and_reports_what_the_collector_rejected) {
  const Collector collector([](const httplib::Request&, httplib::Response& response) {
    wire::ExportTraceServiceResponse answer;
    answer.mutable_partial_success()->set_rejected_spans(2);
    answer.mutable_partial_success()->set_error_message("too old\nERROR forged line");
    response.set_content(answer.SerializeAsString(), "application/x-protobuf");
  });
  Tuning tuning = quick();
  tuning.batch_spans = 3;
  start(collector.url(), tuning);
  for (int i = 0; i < 3; ++i) tracer->on_span(report());
  EXPECT_TRUE(eventually([&] { return counts().exported == 1; }));
  EXPECT_EQ(counts().dropped, 2);
  tracer.reset();
  EXPECT_THAT(log.str(), HasSubstr("rejected 2 of 3 spans: too old"));
  EXPECT_THAT(log.str(), Not(HasSubstr("\nERROR")));
  EXPECT_THAT(log.str(), HasSubstr("code=spans_not_sent"));
  EXPECT_EQ(collector.requests().size(), 1U) << "a partial success is not sent again";
}

TEST_F(OtlpTracerTest, tries_again_after_the_pause_that_the_collector_asks_for) {
  std::mutex mutex;
  std::vector<std::chrono::steady_clock::time_point> times;
  const Collector collector([&](const httplib::Request&, httplib::Response& response) {
    const std::lock_guard lock(mutex);
    times.push_back(std::chrono::steady_clock::now());
    if (times.size() > 1) return;
    response.status = 503;
    response.set_header("Retry-After", "1");
  });
  start(collector.url(), quick());
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().exported == 1; })) << log.str();
  const std::lock_guard lock(mutex);
  ASSERT_EQ(times.size(), 2U);
  EXPECT_GE(times[1] - times[0], 1s);
  EXPECT_EQ(collector.requests()[0].body, collector.requests()[1].body);
}

TEST_F(OtlpTracerTest, tries_again_what_the_protocol_calls_temporary_and_nothing_else) {
  for (const int status : {429, 502, 503, 504, 400, 401, 404, 413, 500, 501, 302}) {
    std::atomic<int> requests{0};
    const Collector collector([&](const httplib::Request&, httplib::Response& response) {
      if (++requests > 1) return;
      response.status = status;
      response.set_header("Location", "/elsewhere");
    });
    start(collector.url(), quick());
    tracer->on_span(report());
    const bool is_temporary = status == 429 || (status >= 502 && status <= 504);
    EXPECT_TRUE(eventually([&] { return (is_temporary ? counts().exported : counts().dropped) == 1; })) << status;
    tracer.reset();
    EXPECT_EQ(requests, is_temporary ? 2 : 1) << status;
  }
}

TEST_F(OtlpTracerTest, reports_a_trouble_once_and_its_end) {
  std::atomic<bool> works{false};
  const Collector collector([&](const httplib::Request&, httplib::Response& response) {
    if (works) return;
    response.status = 401;
    response.set_content("invalid token", "text/plain");
  });
  TracingSettings settings;
  settings.headers = Secret("authorization=s3cret");
  start(collector.url(), quick(), settings);
  for (int i = 0; i < 3; ++i) tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 3; }));
  works = true;
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().exported == 1; }));
  tracer.reset();
  const std::string lines = log.str();
  EXPECT_EQ(lines.find("code=spans_not_sent"), lines.rfind("code=spans_not_sent")) << lines;
  EXPECT_THAT(lines, HasSubstr("it answered with status 401: invalid token; check [tracing] headers"));
  EXPECT_THAT(lines, HasSubstr("again; 3 in all were dropped"));
  EXPECT_THAT(lines, Not(HasSubstr("s3cret")));
}

TEST_F(OtlpTracerTest, begins_traces_with_the_share_of_the_messages_that_is_set) {
  for (const double share : {0.0, 0.25, 1.0}) {
    TracingSettings settings;
    settings.sample = share;
    start("http://127.0.0.1:9", quick(), settings);
    int begun = 0;
    for (int i = 0; i < 10'000; ++i) begun += tracer->begins_trace() ? 1 : 0;
    EXPECT_NEAR(begun, 10'000 * share, share == 0.25 ? 300 : 0);
  }
}

TEST(RetryAfter, is_seconds_or_a_date) {
  const auto now = std::chrono::system_clock::from_time_t(1'700'000'000);  // Tue, 14 Nov 2023 22:13:20 GMT
  EXPECT_EQ(read_retry_after("120", now), 120s);
  EXPECT_EQ(read_retry_after("0", now), 0s);
  EXPECT_EQ(read_retry_after("Tue, 14 Nov 2023 22:13:50 GMT", now), 30s);
  EXPECT_EQ(read_retry_after("Tue, 14 Nov 2023 22:00:00 GMT", now), 0s) << "in the past";
  for (const char* garbage : {"", "-5", "soon", "12x", "99999999999999999999", "Tue, 14 Nov 2023", "14 Nov 2023 GMT"})
    EXPECT_EQ(read_retry_after(garbage, now), std::nullopt) << garbage;
}

}  // namespace
}  // namespace turnstile::otlp::test
