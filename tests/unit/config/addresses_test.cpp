// Addresses of databases and brokers that pass, and those that are refused.

#include "config/addresses.hpp"

#include <gtest/gtest.h>

#include "turnstile/config.hpp"

namespace turnstile::detail {
namespace {

TEST(AddressesTest, of_a_database_pass_as_far_as_libpq_takes_them) {
  for (const char* url : {"postgresql://localhost/app", "postgres://u:p@h:5432/d?sslmode=require",
                          "postgresql:///d?host=/tmp", "postgresql://h1:1,h2:2/d", "postgresql://[::1]:5432/d",
                          "postgresql://[::1]/d", "host=x dbname=y", "dbname='a://b'", "postgresql://u:p%40@h/d"}) {
    EXPECT_EQ(check_postgres_url(url), std::nullopt) << url;
  }
  for (const char* url : {"", "localhost", "mysql://h/d", "postgresql://h:0/d", "postgresql://h:70000/d",
                          "postgresql://h:x/d", "postgresql://u:p/w@h/d"}) {
    EXPECT_NE(check_postgres_url(url), std::nullopt) << url;
  }
}

TEST(AddressesTest, of_brokers_are_a_list) {
  for (const char* servers : {"localhost", "localhost:9092", "a:1, b:2", "PLAINTEXT://a:1", "[::1]:9092", "[::1]"}) {
    EXPECT_EQ(check_servers(servers), std::nullopt) << servers;
  }
  for (const char* servers : {"", "a:1,,b:2", "a:0", "a:65536", "a:x", "a:"}) {
    EXPECT_NE(check_servers(servers), std::nullopt) << servers;
  }
}

TEST(AddressesTest, to_listen_on_have_a_host_and_a_port) {
  for (const char* address : {"", "127.0.0.1:9464", "localhost:0", "[::1]:9464", "0.0.0.0:65535"})
    EXPECT_EQ(check_listen(address), std::nullopt) << address;
  for (const char* address : {"9464", ":9464", "127.0.0.1", "127.0.0.1:", "127.0.0.1:x", "127.0.0.1:65536", "::1:9464"})
    EXPECT_NE(check_listen(address), std::nullopt) << address;
  const auto parts = AdminSettings{"[::1]:9464"}.address();
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->host, "::1");
  EXPECT_EQ(parts->port, 9464);
}

}  // namespace
}  // namespace turnstile::detail
