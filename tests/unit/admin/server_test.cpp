// The admin endpoint, as a program on the same machine sees it.

#include "turnstile/admin/server.hpp"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <vector>

#include "tests/support/captured_log.hpp"
#include "tests/support/eventually.hpp"
#include "tests/support/http_server.hpp"

namespace turnstile::admin {
namespace {

using namespace std::chrono_literals;
using test::eventually;
using ::testing::HasSubstr;
using ::testing::Not;

/// Connections to a port of this machine that send only what they are told.
class RawClients {
 public:
  explicit RawClients(int port) { at_.sin_port = htons(static_cast<std::uint16_t>(port)); }
  ~RawClients() {
    for (const int socket : sockets_) ::close(socket);
  }
  RawClients(const RawClients&) = delete;
  RawClients& operator=(const RawClients&) = delete;
  void connect(int count, const std::string& text) {
    for (int i = 0; i < count; ++i) {
      sockets_.push_back(::socket(AF_INET, SOCK_STREAM, 0));
      ASSERT_EQ(::connect(sockets_.back(), reinterpret_cast<const sockaddr*>(&at_), sizeof at_), 0);
      if (!text.empty()) ::send(sockets_.back(), text.data(), text.size(), MSG_NOSIGNAL);
    }
  }
  void send_from_all(const std::string& text) const {
    for (const int socket : sockets_) ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Until the server closes the last connection.
  [[nodiscard]] std::string receive() const { return receive(sockets_.back()); }
  /// How many have the answer to their request, when the server has closed all connections.
  [[nodiscard]] std::ptrdiff_t answered() const {
    return std::count_if(sockets_.begin(), sockets_.end(),
                         [](int socket) { return receive(socket).find(" 200 ") != std::string::npos; });
  }

 private:
  static std::string receive(int socket) {
    std::string all;
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(socket, buffer, sizeof buffer, 0)) > 0;)
      all.append(buffer, static_cast<std::size_t>(got));
    return all;
  }

  sockaddr_in at_{AF_INET, 0, {htonl(INADDR_LOOPBACK)}, {}};
  std::vector<int> sockets_;
};

class AdminServerTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { const test::HttpServer makes_its_tables; }
  AdminServerTest() {
    status.health.state = Health::State::running;
    status.in_group = true;
    status.store_available = true;
    status.token_log = ports::TokenLogState{.available = true};
    status.threads.push_back({"polling", 0ms, 10s});
  }
  std::unique_ptr<Server> serve(int port = 0) {
    Server::Parts parts;
    parts.view.status = [this] {
      const std::lock_guard lock(mutex);
      return status;
    };
    parts.view.settings = [] {
      return std::vector<ExplainedSetting>{{"postgres.url", "***", "", "environment TURNSTILE_POSTGRES_URL", "what"},
                                           {"topics.t.limit", "", "no limit but the workers", "default", "what"}};
    };
    parts.metrics = [] { return std::string("turnstile_live 1\n"); };
    auto server = std::make_unique<Server>(AdminSettings::Address{"127.0.0.1", port}, parts,
                                           std::make_shared<spdlog::logger>("t", log.sink()));
    return server;
  }
  httplib::Response get(const Server& server, const std::string& path, const std::string& method = "GET") {
    EXPECT_TRUE(eventually([&] { return server.port() != 0; })) << log.str();
    return test::send(server.port(), method, path, {}, "", "");
  }
  void set(const std::function<void(Status&)>& change) {
    const std::lock_guard lock(mutex);
    change(status);
  }

  std::mutex mutex;
  Status status;
  test::CapturedLog log;
};

TEST_F(AdminServerTest, is_healthy_while_its_threads_make_progress) {
  const auto server = serve();
  EXPECT_EQ(get(*server, "/healthz").status, 200);
  set([](Status& s) { s.threads[0].quiet = 69s; });
  EXPECT_EQ(get(*server, "/healthz").status, 200) << "a rebalance may take drain_timeout and more";
  set([](Status& s) { s.threads[0].quiet = 71s; });
  const auto stuck = get(*server, "/healthz");
  EXPECT_EQ(stuck.status, 503);
  EXPECT_EQ(stuck.body, "the polling thread has made no progress for 71 s\n");
  set([](Status& s) {
    s.threads.clear();
    s.health.state = Health::State::halted;
    s.health.reason = "the token log was deleted";
  });
  EXPECT_EQ(get(*server, "/healthz").body, "the consumer is halted: the token log was deleted\n");
}

TEST_F(AdminServerTest, is_ready_while_it_does_its_work_and_says_what_fails) {
  const auto server = serve();
  EXPECT_EQ(get(*server, "/readyz").status, 200);
  set([](Status& s) { s.in_group = false; });
  EXPECT_EQ(get(*server, "/readyz").body, "the consumer is not a member of its group yet\n");
  set([](Status& s) {
    s.in_group = true;
    s.kafka_silent = 9s;
  });
  EXPECT_EQ(get(*server, "/readyz").status, 200) << "a new coordinator of the group begins";
  set([](Status& s) { s.kafka_silent = 46s; });
  EXPECT_EQ(get(*server, "/readyz").body,
            "Kafka has not answered for 46 s: the consumer may have lost its membership of the group\n");
  set([](Status& s) {
    s.kafka_silent.reset();
    s.store_available = false;
  });
  EXPECT_EQ(get(*server, "/readyz").status, 200) << "a topic continues without the database";
  set([](Status& s) {
    s.health.reason = "the database cannot be used: it is away";
    s.token_log->available = false;
  });
  const auto away = get(*server, "/readyz");
  EXPECT_EQ(away.status, 503);
  EXPECT_EQ(away.body, "the token log cannot be reached\nthe database cannot be used: it is away\n");
  EXPECT_EQ(get(*server, "/healthz").status, 200) << "a restart would not help";
  set([](Status& s) {
    s.health.state = Health::State::stopping;
    s.health.reason.clear();
  });
  EXPECT_EQ(get(*server, "/readyz").body, "the consumer is stopping\n");
  EXPECT_EQ(get(*server, "/metrics").status, 200) << "also while it drains";
}

TEST_F(AdminServerTest, shows_the_state_and_the_settings_as_json) {
  set([](Status& s) {
    s.partitions.push_back(
        {.at = {"t\xff", 3}, .position = 10, .end = 17, .in_flight = 3, .running = 1, .paused = true});
    s.pauses.push_back({.part = {"t", 3, "customer-17"}, .by = "anna", .why = "repairs"});
    s.running.push_back({{"t\xff", 3}, 11, "charge", 2'500ms});
    s.limiters.push_back({"psp", {.limit = 64, .in_use = 3}});
    s.health.problems.push_back(
        {.at = {"t", 0}, .reason = "it waits", .offset = {}, .since = std::chrono::system_clock::time_point(1'500ms)});
  });
  const auto server = serve();
  const auto response = get(*server, "/status");
  EXPECT_EQ(response.get_header_value("Content-Type"), "application/json");
  const auto json = nlohmann::json::parse(response.body);
  const auto& partition = json["partitions"][0];
  EXPECT_EQ(partition["topic"], "t\xef\xbf\xbd") << "bytes that are not UTF-8 are replaced";
  EXPECT_EQ(partition["lag"], 7);
  EXPECT_EQ(partition["paused"], true);
  EXPECT_EQ(json["pauses"][0]["partition"], 3);
  EXPECT_EQ(json["pauses"][0]["of_key"], true);
  EXPECT_EQ(json["pauses"][0]["until"], nullptr);
  EXPECT_EQ(json.dump().find("customer-17"), std::string::npos) << "keys may be personal data";
  EXPECT_EQ(partition["lag_seconds"], nullptr);
  EXPECT_EQ(partition["running"][0]["offset"], 11);
  EXPECT_EQ(partition["running"][0]["seconds"], 2.5);
  EXPECT_EQ(json["limiters"][0]["limit"], 64);
  EXPECT_EQ(json["health"]["problems"][0]["since"], "1970-01-01T00:00:01.500Z");
  EXPECT_EQ(json["store"]["outbox"], nullptr);
  EXPECT_EQ(json["settings"][0]["value"], "***");
  EXPECT_EQ(json["settings"][0]["source"], "environment TURNSTILE_POSTGRES_URL");
  EXPECT_EQ(json["settings"][1]["instead"], "no limit but the workers");
}

TEST_F(AdminServerTest, is_read_only) {
  const auto server = serve();
  for (const char* method : {"POST", "PUT", "DELETE", "PATCH", "OPTIONS"}) {
    const auto response = get(*server, "/status", method);
    EXPECT_EQ(response.status, 405) << method;
    EXPECT_EQ(response.get_header_value("Allow"), "GET, HEAD") << method;
  }
  EXPECT_EQ(get(*server, "/nothing").status, 404);
  EXPECT_THAT(get(*server, "/").body, HasSubstr("read-only"));
}

/// An answer with 2,500 ranges had 292 MB, for one request of 8 KB.
TEST_F(AdminServerTest, ignores_ranges) {
  const auto server = serve();
  ASSERT_TRUE(eventually([&] { return server->port() != 0; }));
  std::string range = "bytes=0-";
  for (int i = 0; i < 1'000; ++i) range += ",0-";
  for (const auto& header : {std::string("bytes=0-3"), range}) {
    const auto response = test::send(server->port(), "GET", "/metrics", {{"Range", header}}, "", "");
    EXPECT_EQ(response.status, 200);
    EXPECT_EQ(response.body, "turnstile_live 1\n");
  }
}

TEST_F(AdminServerTest, waits_for_a_port_that_is_in_use) {
  auto first = serve();
  ASSERT_TRUE(eventually([&] { return first->port() != 0; }));
  const auto second = serve(first->port());
  ASSERT_TRUE(eventually([&] { return log.str().find("cannot listen on 127.0.0.1:") != std::string::npos; }))
      << log.str();
  EXPECT_THAT(log.str(), HasSubstr("code=admin_unavailable"));
  EXPECT_EQ(second->port(), 0);
  first.reset();
  EXPECT_EQ(get(*second, "/healthz").status, 200);
}

TEST_F(AdminServerTest, answers_while_other_clients_are_slow_or_silent) {
  const auto server = serve();
  ASSERT_TRUE(eventually([&] { return server->port() != 0; }));
  RawClients clients(server->port());
  clients.connect(8, "GET /healthz HTTP/1.1\r\nX-Slow: ");
  clients.connect(8, "");
  auto began = std::chrono::steady_clock::now();
  EXPECT_EQ(get(*server, "/healthz").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 4s);
  clients.connect(300, "GET ");
  began = std::chrono::steady_clock::now();
  EXPECT_EQ(get(*server, "/healthz").status, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - began, 4s);
}

/// Over a network, a request comes some milliseconds after its connection.
TEST_F(AdminServerTest, waits_for_the_requests_of_many_clients) {
  const auto server = serve();
  ASSERT_TRUE(eventually([&] { return server->port() != 0; }));
  RawClients clients(server->port());
  clients.connect(100, "");
  clients.send_from_all("GET /healthz HTTP/1.1\r\n\r\n");
  EXPECT_GE(clients.answered(), 80);
}

/// The kernel drops connections for which there is no place, and their clients try again after a second.
TEST_F(AdminServerTest, accepts_a_burst_of_connections_at_once) {
  const auto server = serve();
  ASSERT_TRUE(eventually([&] { return server->port() != 0; }));
  const auto began = std::chrono::steady_clock::now();
  RawClients clients(server->port());
  for (int i = 0; i < 400; ++i) clients.connect(1, "");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 900ms);
}

TEST_F(AdminServerTest, reads_no_more_than_a_request_needs) {
  const auto server = serve();
  ASSERT_TRUE(eventually([&] { return server->port() != 0; }));
  std::string headers = "GET /healthz HTTP/1.1\r\n";
  while (headers.size() < 64 * 1024) headers += "X-Header: " + std::string(1'000, 'x') + "\r\n";
  RawClients clients(server->port());
  const auto began = std::chrono::steady_clock::now();
  clients.connect(1, headers);
  EXPECT_THAT(clients.receive(), Not(HasSubstr(" 200 ")));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 4s) << "it did not wait for the end of the headers";
}

TEST_F(AdminServerTest, ends_while_clients_hold_their_connections) {
  auto server = serve();
  ASSERT_TRUE(eventually([&] { return server->port() != 0; }));
  httplib::Client client("127.0.0.1", server->port());
  client.set_keep_alive(true);
  ASSERT_TRUE(client.Get("/healthz"));
  const auto began = std::chrono::steady_clock::now();
  server.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - began, 5s);
}

}  // namespace
}  // namespace turnstile::admin
