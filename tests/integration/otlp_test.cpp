// Spans of a consumer that runs, as a collector gets them. Each request is read with the official files of the protocol.

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <fstream>
#include <mutex>
#include <regex>

#include "tests/support/cli.hpp"
#include "tests/support/http_server.hpp"
#include "tests/support/otlp_text.hpp"
#include "tests/support/world.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTraceparent = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";
/// The same trace and its sender's span in protobuf's text.
constexpr const char* kTraceId = R"(trace_id: "\n\367e\031\026\315C\335\204H\353!\034\2001\234")";
constexpr const char* kParentId = R"(parent_span_id: "\000\360g\252\013\251\002\267")";

class Collector {
 public:
  Collector() {
    http_.server.Post("/v1/traces", [this](const httplib::Request& request, httplib::Response& response) {
      const std::lock_guard lock(mutex_);
      bodies_.push_back(request.body);
      response.set_content("", "application/x-protobuf");
    });
    http_.start();
  }
  [[nodiscard]] std::string url() const { return "http://127.0.0.1:" + std::to_string(http_.port()); }
  /// All requests so far, as text.
  [[nodiscard]] std::string text() const {
    const std::lock_guard lock(mutex_);
    std::string all;
    for (const std::string& body : bodies_) all += otlp_text(body);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> bodies_;
  HttpServer http_;
};

void publish_traced(World& world) { world.publish({{"message-id", "traced"}, {"traceparent", kTraceparent}}, "x"); }

int count(const std::string& text, const std::string& part) {
  int times = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++times;
  return times;
}

TEST(Otlp, a_consumer_sends_its_spans_to_the_endpoint_in_its_environment) {
  TURNSTILE_NEEDS_SERVERS();
  const Collector collector;
  World world(1);
  publish_traced(world);
  Process consumer = world.consumer(world.toml(), {{"OTEL_EXPORTER_OTLP_ENDPOINT", collector.url()},
                                                   {"OTEL_SERVICE_NAME", "billing"},
                                                   {"TURNSTILE_TRACING_SAMPLE", "0"}});
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(30s), 0);
  const std::string text = collector.text();
  for (const char* step : {"receive ", "claim ", "handler ", "commit "})
    EXPECT_EQ(count(text, "name: \"" + (step + world.topic()) + "\""), 1) << text;
  EXPECT_EQ(count(text, kTraceId), 4) << text;
  EXPECT_EQ(count(text, kParentId), 4) << text;
  EXPECT_THAT(text, HasSubstr("string_value: \"billing\""));
  EXPECT_THAT(world.output(), Not(HasSubstr("spans_not_sent")));
}

TEST(Otlp, a_collector_that_hangs_delays_no_message_and_the_end_by_two_seconds_at_most) {
  TURNSTILE_NEEDS_SERVERS();
  // The kernel accepts connections for it, and nothing reads them.
  const int silent = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(silent, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(silent, 16), 0);
  ASSERT_EQ(::getsockname(silent, reinterpret_cast<sockaddr*>(&address), &size), 0);
  World world(4);
  const std::string url = "http://127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  Process consumer = world.consumer(
      world.toml("", "[tracing]\nendpoint = \"" + url + "\"\nsample = 1\n[admin]\nlisten = \"127.0.0.1:0\"\n"));
  world.publish(2'000);
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(15s), 0) << world.output();
  EXPECT_EQ(world.effects().distinct, 2'000);
  ::close(silent);
}

/// The commands of docs/operations/traces.md, as they are but for the ports.
TEST(Otlp, the_commands_of_the_page_show_whether_spans_arrive) {
  TURNSTILE_NEEDS_SERVERS();
  const std::string page = read_file(TURNSTILE_SOURCE_DIR "/docs/operations/traces.md");
  std::smatch block;
  ASSERT_TRUE(std::regex_search(page, block, std::regex("```sh traces\n([^`]*)```")));
  const Collector collector;
  World world(1);
  const std::string toml =
      world.toml("", "[tracing]\nendpoint = \"" + collector.url() + "\"\n[admin]\nlisten = \"127.0.0.1:0\"\n");
  publish_traced(world);
  Process consumer = world.consumer(toml);
  std::smatch port;
  std::string log;
  ASSERT_TRUE(eventually([&] {
    log = world.output();
    return std::regex_search(log, port, std::regex("listens on http://127\\.0\\.0\\.1:(\\d+)/"));
  })) << log;
  ASSERT_TRUE(eventually([&] { return collector.text().find(kTraceId) != std::string::npos; }, 60s)) << world.output();

  const TemporaryFolder folder;
  folder.write("turnstile.toml", toml);
  folder.write("commands.sh",
               std::regex_replace(block[1].str(), std::regex("127\\.0\\.0\\.1:9464"), "127.0.0.1:" + port[1].str()));
  const std::string run = "cd " + folder.path().string() +
                          " && PATH=" TURNSTILE_BIN_DIR ":$PATH bash -eu -o pipefail " + "commands.sh >out 2>&1";
  std::string out;
  EXPECT_TRUE(eventually([&] {  // the numbers are renewed once a second
    const int code = std::system(run.c_str());
    out = read_file(folder.path() / "out");
    return code == 0 && std::regex_search(out, std::regex("turnstile_spans_exported_total [1-9]"));
  })) << out;
  EXPECT_THAT(out, HasSubstr("tracing.endpoint = \"" + collector.url() + "\""));
  EXPECT_THAT(out, HasSubstr("turnstile_spans_dropped_total 0"));
}

/// TURNSTILE_TEST_COLLECTOR is a program that tests/support/otel-collector/build has built: an OpenTelemetry collector
/// with the receiver for OTLP, which prints what it gets.
TEST(Otlp, a_real_collector_accepts_the_spans) {
  TURNSTILE_NEEDS_SERVERS();
  const char* program = std::getenv("TURNSTILE_TEST_COLLECTOR");
  if (program == nullptr || *program == '\0') {
    GTEST_SKIP() << "no OpenTelemetry collector: TURNSTILE_TEST_COLLECTOR is not set; "
                    "tests/support/otel-collector/build builds one, if Go is there";
  }
  const TemporaryFolder folder;
  int port = 0;
  {
    port = [] {
      HttpServer free;
      free.start();
      return free.port();
    }();
  }
  const std::string address = "127.0.0.1:" + std::to_string(port);
  folder.write("collector.yaml", "receivers: {otlp: {protocols: {http: {endpoint: '" + address +
                                     "'}}}}\n"
                                     "exporters: {debug: {verbosity: detailed, use_internal_logger: false}}\n"
                                     "service:\n  telemetry: {metrics: {level: none}}\n"
                                     "  pipelines: {traces: {receivers: [otlp], exporters: [debug]}}\n");
  const std::string output = (folder.path() / "output").string();
  Process collector(program, {"--config", (folder.path() / "collector.yaml").string()}, {}, output);
  ASSERT_TRUE(eventually([&] { return send(port, "GET", "/", {}, "").status != 0; })) << read_file(output);

  World world(1);
  world.publish({{"message-id", "hostile"}, {"traceparent", kTraceparent}, {"tracestate", "bytes=\xff\xfe"}}, "throw");
  publish_traced(world);
  Process consumer =
      world.consumer(world.toml("retry = { attempts = 1 }"), {{"TURNSTILE_TRACING_ENDPOINT", "http://" + address}});
  ASSERT_TRUE(eventually([&] { return world.caught_up(); }, 60s)) << world.output();
  consumer.signal(SIGTERM);
  EXPECT_EQ(consumer.wait(30s), 0) << world.output();
  EXPECT_TRUE(eventually([&] { return count(read_file(output), "0af7651916cd43dd8448eb211c80319c") >= 4; }))
      << read_file(output);
  const std::string got = read_file(output);
  EXPECT_THAT(got, HasSubstr("Name           : handler " + world.topic()));
  EXPECT_THAT(got, HasSubstr("Parent ID      : 00f067aa0ba902b7"));
  EXPECT_THAT(got, HasSubstr("told to throw")) << "the reason of the failure";
  EXPECT_THAT(world.output(), Not(HasSubstr("spans_not_sent"))) << "it refused nothing";
}

}  // namespace
}  // namespace turnstile::test
