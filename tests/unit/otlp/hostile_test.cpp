// Collectors that are away, hang, close, or send garbage. Each costs its spans, one log line and a bounded time, and
// nothing else.

#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tests/unit/otlp/collector.hpp"

namespace turnstile::otlp::test {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

struct Hostile {
  const char* name;
  RawServer::Serve serve;
  const char* report;  ///< a part of the log line
};
void PrintTo(const Hostile& hostile, std::ostream* out) { *out << hostile.name; }

void read_some(int connection) {
  char buffer[4096];
  [[maybe_unused]] const auto got = ::recv(connection, buffer, sizeof buffer, 0);
}
bool put(int connection, const std::string& text) {
  return ::send(connection, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
}
/// Until the client goes away.
void drip(int connection, const std::atomic<bool>& is_over, const std::string& first, const std::string& drop) {
  read_some(connection);
  put(connection, first);
  while (!is_over && put(connection, drop)) std::this_thread::sleep_for(5ms);
}

const std::vector<Hostile> kHostile{
    {"closes_at_once", [](int, const auto&) {}, "spans cannot be sent to"},
    {"closes_after_the_request", [](int connection, const auto&) { read_some(connection); }, "spans cannot be sent to"},
    {"never_answers",
     [](int connection, const auto& is_over) {
       while (!is_over) {
         char byte = 0;
         if (::recv(connection, &byte, 1, 0) <= 0) return;
       }
     },
     "no answer in time"},
    {"sends_a_byte_of_its_status_now_and_then",
     [](int connection, const auto& is_over) { drip(connection, is_over, "HTTP/1.1 200 ", "O"); }, "no answer in time"},
    {"sends_a_header_now_and_then",
     [](int connection, const auto& is_over) { drip(connection, is_over, "HTTP/1.1 200 OK\r\n", "X-A: b\r\n"); },
     "no answer in time"},
    {"sends_a_byte_of_its_body_now_and_then",
     [](int connection, const auto& is_over) {
       drip(connection, is_over, "HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", "x");
     },
     "the answer did not end in time"},
    {"sends_no_http",
     [](int connection, const auto&) {
       read_some(connection);
       put(connection, std::string(1'000, '\xff'));
     },
     "spans cannot be sent to"},
    {"sends_the_page_of_a_web_server",
     [](int connection, const auto&) {
       read_some(connection);
       put(connection, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 6\r\n\r\n<html>");
     },
     "not as a collector does"},
    {"sends_protobuf_that_is_none",
     [](int connection, const auto&) {
       read_some(connection);
       put(connection,
           "HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 3\r\n\r\n\xff\xff\xff");
     },
     "not as a collector does"},
    {"asks_for_a_pause_of_a_century",
     [](int connection, const auto&) {
       read_some(connection);
       put(connection, "HTTP/1.1 503 No\r\nRetry-After: 9223372036854775807\r\nContent-Length: 0\r\n\r\n");
     },
     "status 503"},
};

class OtlpHostileTest : public OtlpTest, public ::testing::WithParamInterface<Hostile> {
 protected:
  static Tuning impatient() {
    Tuning tuning = quick();
    tuning.request_timeout = 300ms;
    tuning.keep_trying = 0ms;
    tuning.flush = 300ms;
    return tuning;
  }
  /// Ends the tracer first: the line that says what was dropped comes after the count.
  std::string log_at_end() {
    tracer.reset();
    return log.str();
  }
};

TEST_P(OtlpHostileTest, costs_the_spans_and_one_log_line) {
  const RawServer server(GetParam().serve);
  start(server.url(), impatient());
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 1; })) << log.str();
  EXPECT_EQ(counts().exported, 0);
  EXPECT_GE(server.accepted(), 1);
  EXPECT_THAT(log_at_end(), AllOf(HasSubstr(GetParam().report), HasSubstr("code=spans_not_sent")));
}

TEST_P(OtlpHostileTest, does_not_hold_the_end_of_the_process) {
  const RawServer server(GetParam().serve);
  Tuning tuning = impatient();
  tuning.request_timeout = 1h;
  tuning.keep_trying = 1h;
  tuning.first_retry = 1h;
  start(server.url(), tuning);
  for (int i = 0; i < 10; ++i) tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return server.accepted() > 0; }));
  const auto begin = std::chrono::steady_clock::now();
  tracer.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
}

INSTANTIATE_TEST_SUITE_P(, OtlpHostileTest, ::testing::ValuesIn(kHostile),
                         [](const auto& server) { return std::string(server.param.name); });

class OtlpAwayTest : public OtlpHostileTest {};

TEST_F(OtlpAwayTest, reads_little_of_endless_headers) {
  std::atomic<std::size_t> sent{0};
  std::string part;
  while (part.size() < 60'000) part += "X-A: " + std::string(4'000, 'x') + "\r\n";
  const RawServer server([&](int connection, const auto& is_over) {
    read_some(connection);
    put(connection, "HTTP/1.1 200 OK\r\n");
    const timeval patience{1, 0};  // the kernel notices late that the client has gone
    ::setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    while (sent < std::size_t{512} << 20 && !is_over && put(connection, part)) sent += part.size();
  });
  Tuning tuning = impatient();
  tuning.request_timeout = 20s;
  start(server.url(), tuning);
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 1; }, 15s)) << log.str();
  // Later versions of cpp-httplib read at most 100 headers.
  EXPECT_THAT(log_at_end(), AnyOf(HasSubstr("more than 64 KiB"), HasSubstr("the answer is not HTTP")));
  EXPECT_LT(sent, std::size_t{256} << 20);
}

TEST_F(OtlpAwayTest, reads_little_of_an_endless_answer) {
  std::atomic<std::size_t> sent{0};
  const std::string part(std::size_t{1} << 20, 'x');
  const RawServer server([&](int connection, const auto& is_over) {
    read_some(connection);
    put(connection, "HTTP/1.1 200 OK\r\nContent-Length: 1073741824\r\n\r\n");
    for (int i = 0; i < 1'024 && !is_over; ++i) {
      if (!put(connection, part)) return;
      sent += part.size();
    }
  });
  Tuning tuning = impatient();
  tuning.request_timeout = 20s;
  start(server.url(), tuning);
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 1; })) << log.str();
  EXPECT_LT(sent, std::size_t{64} << 20) << "the connection's buffers, and what was read";
  EXPECT_THAT(log_at_end(), HasSubstr("more than 64 KiB"));
}

TEST_F(OtlpAwayTest, survives_a_server_that_does_not_read) {
  // The write after the cut raises SIGPIPE, which ends a process that does not expect it.
  const auto before = std::signal(SIGPIPE, SIG_DFL);
  const RawServer server([](int, const auto& is_over) {
    while (!is_over) std::this_thread::sleep_for(5ms);
  });
  Tuning tuning = impatient();
  tuning.batch_spans = 200;
  tuning.batch_bytes = tuning.queue_bytes = std::size_t{64} << 20;
  start(server.url(), tuning);
  const std::vector<TraceContext> links(500, TraceContext{.state = std::string(200, 'x')});
  SpanReport span = report();
  span.links = links;
  for (int i = 0; i < 200; ++i) tracer->on_span(span);
  EXPECT_TRUE(eventually([&] { return counts().dropped == 200; })) << log.str();
  std::signal(SIGPIPE, before);
}

/// The masks of blocked signals, by thread.
std::map<std::string, std::uint64_t> blocked_signals() {
  std::map<std::string, std::uint64_t> masks;
  for (const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(thread.path() / "status");
    for (std::string line; std::getline(status, line);) {
      if (line.starts_with("SigBlk:")) masks[thread.path().filename()] = std::stoull(line.substr(7), nullptr, 16);
    }
  }
  return masks;
}

/// A write to a connection that its server has closed raises SIGPIPE. And SIGTERM is for a thread of the program.
TEST_F(OtlpAwayTest, its_threads_get_no_signals) {
  std::thread([] {}).join();  // a sanitizer starts a thread of its own with the first one
  const auto before = blocked_signals();
  start("http://127.0.0.1:9", impatient());
  int threads = 0;
  for (const auto& [thread, mask] : blocked_signals()) {
    if (before.contains(thread)) continue;
    ++threads;
    for (const int signal : {SIGPIPE, SIGTERM, SIGINT, SIGHUP}) EXPECT_NE(mask >> (signal - 1) & 1U, 0U) << signal;
  }
  EXPECT_EQ(threads, 2);
  EXPECT_EQ(blocked_signals()[std::to_string(::getpid())], before.at(std::to_string(::getpid())))
      << "the caller's mask";
}

TEST_F(OtlpAwayTest, drops_the_spans_if_nobody_listens) {
  int port = 0;
  { port = Collector().port(); }
  start("http://127.0.0.1:" + std::to_string(port), impatient());
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 1; }));
  EXPECT_THAT(log_at_end(), HasSubstr("Messages are processed as before"));
}

TEST_F(OtlpAwayTest, drops_the_spans_if_the_host_is_unknown) {
  start("http://collector.invalid:4318", impatient());
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 1; }));
  EXPECT_THAT(log_at_end(), HasSubstr("the host's name"));
}

TEST_F(OtlpAwayTest, tries_each_address_of_a_host) {
  const Collector collector;  // on 127.0.0.1 alone: localhost is often ::1, too
  start("http://localhost:" + std::to_string(collector.port()), quick());
  tracer->on_span(report());
  EXPECT_TRUE(eventually([&] { return counts().exported == 1; })) << log.str();
}

TEST_F(OtlpAwayTest, trusts_no_certificate_that_the_system_does_not_know) {
  const Collector collector;  // without TLS: the handshake fails
  start("https://127.0.0.1:" + std::to_string(collector.port()), impatient());
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return counts().dropped == 1; }));
  EXPECT_EQ(collector.requests().size(), 0U);
}

TEST_F(OtlpAwayTest, keeps_the_spans_while_the_collector_restarts) {
  int port = 0;
  { port = Collector().port(); }
  Tuning tuning = impatient();
  tuning.keep_trying = 60s;
  tuning.longest_retry = 20ms;
  start("http://127.0.0.1:" + std::to_string(port), tuning);
  tracer->on_span(report());
  ASSERT_TRUE(eventually([&] { return log.str().find("spans_not_sent") != std::string::npos; }));
  EXPECT_EQ(counts().waiting, 1);
  turnstile::test::HttpServer late;
  late.server.Post("/v1/traces", [](const httplib::Request&, httplib::Response&) {});
  ASSERT_TRUE(late.server.bind_to_port("127.0.0.1", port));
  std::thread serving([&] { late.server.listen_after_bind(); });
  EXPECT_TRUE(eventually([&] { return counts().exported == 1; })) << log.str();
  late.server.stop();
  serving.join();
}

}  // namespace
}  // namespace turnstile::otlp::test
