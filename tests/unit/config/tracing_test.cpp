// The settings of [tracing]: the collector's address, its headers, the share of traces, and OpenTelemetry's variables.

#include <gtest/gtest.h>

#include <map>

#include "config/addresses.hpp"
#include "config/secrets.hpp"
#include "turnstile/error.hpp"
#include "turnstile/explain.hpp"

namespace turnstile::detail {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;
using Pairs = std::vector<std::pair<std::string, std::string>>;

Config parse(std::string_view toml, const Variables& variables = {}) {
  return Config::parse(toml, "turnstile.toml", [&](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  });
}

std::string problem(std::string_view toml, const Variables& variables = {}) {
  try {
    parse(toml, variables);
  } catch (const ConfigError& error) {
    return error.problems.size() == 1 ? error.problems[0] : std::to_string(error.problems.size()) + " problems";
  }
  return {};
}

TEST(TracingSettingsTest, the_endpoint_is_a_url) {
  const auto target = [](const std::string& url) {
    TracingSettings settings;
    settings.endpoint = url;
    const auto parts = settings.target();
    if (!parts) return std::string("none");
    return std::string(parts->is_https ? "https " : "http ") + parts->host + " " + std::to_string(parts->port) + " " +
           parts->path;
  };
  EXPECT_EQ(target(""), "none");
  EXPECT_EQ(target("http://127.0.0.1:4318"), "http 127.0.0.1 4318 /v1/traces");
  EXPECT_EQ(target("https://otel.example.com"), "https otel.example.com 443 /v1/traces");
  EXPECT_EQ(target("http://collector/otlp/"), "http collector 80 /otlp/v1/traces");
  EXPECT_EQ(target("http://[2001:db8::1]:4318/"), "http 2001:db8::1 4318 /v1/traces");
  EXPECT_EQ(check_collector(""), std::nullopt);
  for (const char* url :
       {"collector", "collector:4318", "grpc://collector:4317", "http://", "http://:4318", "http://h:0",
        "http://h:65536", "http://h:x", "http://h:", "http://[::1", "http://[::1]x", "http://h/a b", "http://h/?x=1",
        "http://h/#x", "http://h/\r\nX: y", "ftp://h", "http://\xff"}) {
    EXPECT_NE(check_collector(url), std::nullopt) << url;
    EXPECT_EQ(target(url), "none") << url;
  }
}

TEST(TracingSettingsTest, a_password_in_the_endpoint_is_refused_and_not_quoted) {
  const std::string why = problem("[tracing]\nendpoint = 'https://user:s3cret@collector:4318'");
  EXPECT_NE(why.find("turnstile.toml:2: tracing.endpoint: must not have a user or a password"), std::string::npos)
      << why;
  EXPECT_EQ(why.find("s3cret"), std::string::npos) << why;
}

TEST(TracingSettingsTest, headers_are_pairs_with_percent_encoded_values) {
  TracingSettings settings;
  settings.headers = Secret("authorization=Bearer%20a%2Cb , x-tenant = 7,,x=a=b");
  EXPECT_EQ(settings.header_list(), (Pairs{{"authorization", "Bearer a,b"}, {"x-tenant", "7"}, {"x", "a=b"}}));
  EXPECT_EQ(check_headers(""), std::nullopt);
  for (const char* headers : {"no pair", "=x", "a b=c", "a=%", "a=%4", "a=%zz", "a=%0d%0aX-Evil:1", "a=%00", "a=\xff",
                              "Content-Length=5", "host=x", "Transfer-Encoding=chunked"})
    EXPECT_NE(check_headers(headers), std::nullopt) << headers;
}

TEST(TracingSettingsTest, headers_are_shown_nowhere) {
  const Config config = parse("[tracing]\nheaders = 'authorization=s3cret'");
  for (const ExplainedSetting& setting : explain(config)) EXPECT_EQ(setting.value.find("s3cret"), std::string::npos);
  EXPECT_EQ(explain(config, "tracing.headers")[0].value, "\"***\"");
  EXPECT_EQ(problem("[tracing]\nheaders = 'authorization s3cret'").find("s3cret"), std::string::npos);
  EXPECT_TRUE(may_hold_secret("headers = \"x-api-key=s3cret"));
}

TEST(TracingSettingsTest, the_share_is_from_0_to_1) {
  EXPECT_EQ(parse("").tracing.sample, 0.01);
  EXPECT_EQ(parse("[tracing]\nsample = 0.25").tracing.sample, 0.25);
  EXPECT_EQ(parse("[tracing]\nsample = 1").tracing.sample, 1);
  EXPECT_EQ(parse("", {{"TURNSTILE_TRACING_SAMPLE", "0.5"}}).tracing.sample, 0.5);
  EXPECT_EQ(explain(parse("[tracing]\nsample = 0.25"), "tracing.sample")[0].value, "0.25");
  EXPECT_EQ(problem("[tracing]\nsample = 1.5"),
            "turnstile.toml:2: tracing.sample: must be a number from 0 to 1, not 1.5");
  for (const char* wrong : {"-0.1", "'0.5'", "nan", "inf", "true"})
    EXPECT_NE(problem("[tracing]\nsample = " + std::string(wrong)), "") << wrong;
  for (const char* wrong : {"2", "nan", "1%", "half", "0.5x"})
    EXPECT_NE(problem("", {{"TURNSTILE_TRACING_SAMPLE", wrong}}), "") << wrong;
}

TEST(TracingSettingsTest, open_telemetrys_variables_apply_where_nothing_else_does) {
  const Variables standard{{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318"},
                           {"OTEL_EXPORTER_OTLP_HEADERS", "a=b"},
                           {"OTEL_EXPORTER_OTLP_CERTIFICATE", "/ca.pem"},
                           {"OTEL_SERVICE_NAME", "billing"}};
  const Config config = parse("", standard);
  EXPECT_EQ(config.tracing.endpoint, "http://collector:4318");
  EXPECT_EQ(config.tracing.header_list(), (Pairs{{"a", "b"}}));
  EXPECT_EQ(config.tracing.ca_file, "/ca.pem");
  EXPECT_EQ(config.tracing.service_name, "billing");
  EXPECT_EQ(explain(config, "tracing.endpoint")[0].source, "environment OTEL_EXPORTER_OTLP_ENDPOINT");

  EXPECT_EQ(parse("[tracing]\nendpoint = ''", standard).tracing.endpoint, "") << "so a program can turn it off";
  Variables both = standard;
  both["TURNSTILE_TRACING_ENDPOINT"] = "http://other:4318";
  EXPECT_EQ(parse("", both).tracing.endpoint, "http://other:4318");
  EXPECT_EQ(parse("", both).where("tracing.endpoint"), "environment TURNSTILE_TRACING_ENDPOINT: tracing.endpoint");

  Variables grpc = standard;
  grpc["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc";
  EXPECT_EQ(parse("", grpc).tracing.endpoint, "") << "that port does not understand HTTP";
  grpc["OTEL_EXPORTER_OTLP_PROTOCOL"] = "http/protobuf";
  EXPECT_EQ(parse("", grpc).tracing.endpoint, "http://collector:4318");
}

TEST(TracingSettingsTest, a_wrong_variable_of_open_telemetry_is_named) {
  EXPECT_EQ(problem("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", "collector"}}),
            "environment OTEL_EXPORTER_OTLP_ENDPOINT: tracing.endpoint: is not a URL with http or https; write "
            "http://HOST:4318 or https://HOST:4318");
}

}  // namespace
}  // namespace turnstile::detail
