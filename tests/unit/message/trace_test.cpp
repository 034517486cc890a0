// W3C trace contexts: which headers are valid, and how they are written.

#include "turnstile/trace.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace turnstile {
namespace {

const std::string kTrace = "4bf92f3577b34da6a3ce929d0e0e4736", kSpan = "00f067aa0ba902b7";
const std::string kValid = "00-" + kTrace + "-" + kSpan + "-01";

OwnedMessage with(std::vector<Header> headers) {
  OwnedMessage message;
  message.topic = "t";
  message.headers = std::move(headers);
  return message;
}

TEST(TraceTest, reads_what_it_writes) {
  const auto trace = parse_traceparent(kValid);
  ASSERT_TRUE(trace);
  EXPECT_EQ(to_traceparent(*trace), kValid);
  EXPECT_EQ(trace_id_text(*trace), kTrace);
  EXPECT_TRUE(trace->is_sampled());
  EXPECT_FALSE(parse_traceparent("00-" + kTrace + "-" + kSpan + "-00")->is_sampled());
}

TEST(TraceTest, takes_no_garbage) {
  const std::string zeros(32, '0');
  for (const std::string& text :
       {std::string(), std::string("x"), "ff-" + kTrace + "-" + kSpan + "-01", "00-" + zeros + "-" + kSpan + "-01",
        "00-" + kTrace + "-" + zeros.substr(16) + "-01", "00-" + kTrace + "-" + kSpan + "-1",
        "00-" + kTrace + "-" + kSpan + "-01-more", "00-4BF92F3577B34DA6A3CE929D0E0E4736-" + kSpan + "-01",
        "00_" + kTrace + "-" + kSpan + "-01", "0g-" + kTrace + "-" + kSpan + "-01", kValid + " ",
        "01-" + kTrace + "-" + kSpan + "-01x"})
    EXPECT_FALSE(parse_traceparent(text)) << text;
}

TEST(TraceTest, takes_what_it_knows_of_a_later_version) {
  for (const std::string& text : {"01-" + kTrace + "-" + kSpan + "-03", "cc-" + kTrace + "-" + kSpan + "-01-more"}) {
    const auto trace = parse_traceparent(text);
    ASSERT_TRUE(trace) << text;
    EXPECT_EQ(to_traceparent(*trace), kValid) << "version 00, and known flags only";
  }
}

RC_GTEST_PROP(TraceTest, no_bytes_break_it, (const std::string& text)) {
  if (const auto trace = parse_traceparent(text)) RC_ASSERT(parse_traceparent(to_traceparent(*trace)) == trace);
}

TEST(TraceTest, of_a_message_needs_exactly_one_header) {
  EXPECT_FALSE(trace_of(Message(with({}))));
  EXPECT_FALSE(trace_of(Message(with({{"traceparent", std::nullopt}}))));
  const auto twice = with({{"traceparent", kValid}, {"traceparent", kValid}});
  EXPECT_FALSE(trace_of(Message(twice)));
  const auto message = with({{"tracestate", "a=1"}, {"traceparent", kValid}});
  const auto trace = trace_of(Message(message));
  ASSERT_TRUE(trace);
  EXPECT_EQ(trace->state, "a=1");
  const auto large = with({{"tracestate", std::string(513, 'x')}, {"traceparent", kValid}});
  EXPECT_EQ(trace_of(Message(large))->state, "");
}

TEST(TraceTest, is_put_into_a_message_that_has_none) {
  auto trace = *parse_traceparent(kValid);
  trace.state = "a=1";
  auto message = with({{"tracestate", "stale"}, {"other", "kept"}});
  put_trace(message, trace);
  EXPECT_EQ(trace_of(Message(message)), trace);
  EXPECT_EQ(message.headers.size(), 3U);
  auto own = with({{"traceparent", "the handler's own"}});
  put_trace(own, trace);
  EXPECT_EQ(own.headers.size(), 1U) << "it is sent unchanged";
}

}  // namespace
}  // namespace turnstile
