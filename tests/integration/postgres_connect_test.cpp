// Connections that cannot be opened: what a person reads, and that the text contains no password.

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "tests/integration/postgres_fixture.hpp"
#include "tests/support/tcp_proxy.hpp"

namespace turnstile::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

class PostgresConnect : public PostgresTest {
 protected:
  static std::string refusal(const std::string& url) {
    PostgresSettings settings;
    settings.url = Secret(url);
    return message_of<StoreUnavailable>([&] { postgres::open_store(settings)->check_schema(); });
  }
  static std::string unreadable(const std::string& url, const std::string& schema = "turnstile") {
    PostgresSettings settings;
    settings.url = Secret(url);
    settings.schema = schema;
    return message_of<ConfigError>([&] { postgres::open_store(settings); });
  }
  std::string host() { return sql().one("SELECT host(inet_server_addr())"); }
  std::string port() { return sql().one("SELECT inet_server_port()"); }
  std::string database() { return sql().one("SELECT current_database()"); }
};

TEST_F(PostgresConnect, a_wrong_password_is_said_and_not_shown) {
  sql().exec("CREATE ROLE " + schema_->name() + "_app LOGIN PASSWORD 'right'");
  const std::string message =
      refusal("postgresql://" + schema_->name() + "_app:hunter2@" + host() + ":" + port() + "/" + database());
  sql().exec("DROP ROLE " + schema_->name() + "_app");
  EXPECT_THAT(message, AllOf(HasSubstr("password authentication failed"), HasSubstr("check the user, the password"),
                             HasSubstr("user " + schema_->name() + "_app"), HasSubstr(":" + port())));
  EXPECT_THAT(message, Not(HasSubstr("hunter2")));
}

TEST_F(PostgresConnect, a_missing_password_is_said) {
  sql().exec("CREATE ROLE " + schema_->name() + "_app LOGIN PASSWORD 'right'");
  unsetenv("PGPASSWORD");
  const std::string message = refusal("postgresql://" + schema_->name() + "_app@" + host() + ":" + port() + "/" +
                                      database() + "?passfile=/nonexistent");
  sql().exec("DROP ROLE " + schema_->name() + "_app");
  EXPECT_THAT(message, HasSubstr("the server requires a password, but postgres.url has none"));
}

TEST_F(PostgresConnect, a_missing_database_is_said) {
  std::string url = schema_->url();
  const auto name = url.rfind("/" + database() + "?");
  ASSERT_NE(name, std::string::npos);
  url.replace(name + 1, database().size(), "no_such_database");
  EXPECT_THAT(refusal(url),
              AllOf(HasSubstr("\"no_such_database\" does not exist"), HasSubstr("database no_such_database")));
}

TEST_F(PostgresConnect, a_refused_connection_is_said) {
  // The socket is bound and does not listen, so no other process gets the port.
  const int closed = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(closed, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(closed, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const std::string at = "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const std::string message = refusal("postgresql://app:hunter2@" + at + "/app");
  close(closed);
  EXPECT_THAT(message, AllOf(HasSubstr("(" + at + ", database app, user app)"), HasSubstr("refused"),
                             HasSubstr("check postgres.url and that the server runs"), Not(HasSubstr("hunter2"))));
}

TEST_F(PostgresConnect, a_server_that_says_nothing_is_given_up_in_time) {
  TcpProxy proxy(host(), std::stoi(port()));
  proxy.stall(true);
  PostgresSettings settings = schema_->settings_through(proxy.port());
  settings.connect_timeout = 1ms;  // libpq's shortest timeout is 2 s
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<StoreUnavailable>([&] { postgres::open_store(settings)->check_schema(); }),
              HasSubstr("timeout expired"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, 10s);
}

/// The connection is left behind on its thread, which may be in GSSAPI at first. If the process ended then, it would abort.
TEST_F(PostgresConnect, a_process_that_ends_leaves_a_connection_alone_for_a_moment_and_no_longer) {
  TcpProxy proxy(host(), std::stoi(port()));
  proxy.stall(true);
  const auto store = postgres::open_store(schema_->settings_through(proxy.port()));
  std::thread ends([&] {
    EXPECT_TRUE(eventually([&] { return proxy.accepted() > 0; }));
    store->cut(true);
  });
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<StoreUnavailable>([&] { store->history(); }), HasSubstr("before this process ended"));
  const auto took = std::chrono::steady_clock::now() - start;
  ends.join();
  EXPECT_GE(took, 300ms);
  EXPECT_LT(took, 2s);
}

TEST_F(PostgresConnect, an_unreadable_url_is_refused_without_showing_it) {
  for (const char* url : {"postgresql://app:hunter2@host:5432/db?nonsense=hunter2", "hunter2",
                          "postgresql://app:hun@ter2/hunter2@host/db"}) {
    const std::string message = unreadable(url);
    EXPECT_THAT(message, AllOf(HasSubstr("postgres.url"), Not(HasSubstr("hun")), Not(HasSubstr("ter2")))) << url;
  }
  EXPECT_THAT(unreadable("postgresql://app:hun@ter2/hunter2@host/db"), HasSubstr("%40"));
  EXPECT_THAT(unreadable(""), HasSubstr("postgres.url: missing"));
  EXPECT_THAT(unreadable("postgresql://host/db", "a\"; DROP"), HasSubstr("postgres.schema"));
  EXPECT_THAT(unreadable("postgresql://host/db", std::string(64, 's')), HasSubstr("at most 63"));
}

TEST_F(PostgresConnect, more_sessions_than_connections_take_turns) {
  PostgresSettings settings = schema_->settings();
  settings.connections = 1;
  open(settings);
  begin("a");
  const int only = backend();
  const auto other = store_->open_session();
  // The store's own calls do not wait for handlers.
  EXPECT_EQ(store_->register_handler("charge"), handler_);
  session_->commit();
  other->begin(scope(), {});
  EXPECT_EQ(other->transaction().exec("SELECT pg_backend_pid()").get<int>(0, 0), only);
  other->commit();
}

}  // namespace
}  // namespace turnstile::test
