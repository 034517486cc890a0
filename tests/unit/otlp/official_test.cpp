// What is sent, read with the official files of the protocol: a field with another number or type would be missing, or
// have no name.

#include <gmock/gmock.h>

#include "tests/support/otlp_text.hpp"
#include "tests/unit/otlp/collector.hpp"

namespace turnstile::otlp::test {
namespace {

using ::testing::HasSubstr;

TEST_F(OtlpTest, official_readers_find_every_field) {
  const Collector collector;
  start(collector.url(), quick());
  const std::vector<TraceContext> links{*parse_traceparent("00-0af7651916cd43dd8448eb211c80319d-00f067aa0ba902b8-01")};
  SpanReport span = report();
  span.context.state = "vendor=1";
  span.error = "no money";
  span.messages = 2;
  span.links = links;
  tracer->on_span(span);
  ASSERT_TRUE(eventually([&] { return collector.requests().size() == 1; }));
  EXPECT_EQ(turnstile::test::otlp_text(collector.requests()[0].body), R"(resource_spans {
  resource {
    attributes {
      key: "service.name"
      value {
        string_value: "billing"
      }
    }
    attributes {
      key: "service.instance.id"
      value {
        string_value: "billing@host1:7"
      }
    }
    attributes {
      key: "telemetry.sdk.name"
      value {
        string_value: "turnstile"
      }
    }
    attributes {
      key: "telemetry.sdk.language"
      value {
        string_value: "cpp"
      }
    }
    attributes {
      key: "telemetry.sdk.version"
      value {
        string_value: "0.1.0"
      }
    }
  }
  scope_spans {
    scope {
      name: "turnstile"
      version: "0.1.0"
    }
    spans {
      trace_id: "\n\367e\031\026\315C\335\204H\353!\034\2001\234"
      span_id: "\000\360g\252\013\251\002\267"
      trace_state: "vendor=1"
      parent_span_id: "\001\002\003\004\005\006\007\010"
      name: "handler payments"
      kind: SPAN_KIND_CONSUMER
      start_time_unix_nano: 1700000000000000000
      end_time_unix_nano: 1700000000001500000
      attributes {
        key: "messaging.system"
        value {
          string_value: "kafka"
        }
      }
      attributes {
        key: "messaging.destination.name"
        value {
          string_value: "payments"
        }
      }
      attributes {
        key: "messaging.destination.partition.id"
        value {
          string_value: "3"
        }
      }
      attributes {
        key: "messaging.consumer.group.name"
        value {
          string_value: "billing-group"
        }
      }
      attributes {
        key: "messaging.kafka.offset"
        value {
          int_value: 1042
        }
      }
      attributes {
        key: "messaging.batch.message_count"
        value {
          int_value: 2
        }
      }
      attributes {
        key: "messaging.operation.type"
        value {
          string_value: "process"
        }
      }
      attributes {
        key: "messaging.operation.name"
        value {
          string_value: "handler"
        }
      }
      attributes {
        key: "turnstile.handler"
        value {
          string_value: "charge"
        }
      }
      links {
        trace_id: "\n\367e\031\026\315C\335\204H\353!\034\2001\235"
        span_id: "\000\360g\252\013\251\002\270"
        flags: 1
      }
      status {
        message: "no money"
        code: STATUS_CODE_ERROR
      }
      flags: 769
    }
  }
}
)");
}

}  // namespace
}  // namespace turnstile::otlp::test
