#pragma once
// Members of a domain over a log in memory.

#include <gtest/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <vector>

#include "tests/support/eventually.hpp"
#include "turnstile/testing/token_log.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::test {

struct Cluster {
  std::shared_ptr<testing::MemoryTokenTopic> topic = std::make_shared<testing::MemoryTokenTopic>();
  std::shared_ptr<spdlog::logger> quiet =
      std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>());
  TokenSettings settings{.lease = std::chrono::milliseconds(2'000)};

  std::shared_ptr<TokenDomain> join() {
    auto domain = join_token_domain(std::make_unique<testing::MemoryTokenLog>(topic), settings, quiet);
    EXPECT_TRUE(domain->wait_until_joined(std::chrono::seconds(20)));
    return domain;
  }
};

/// Takes all permits that are available, after at least `least` are.
inline std::vector<Permit> take_all(ports::Limiter& limiter, std::size_t least) {
  std::vector<Permit> taken;
  limiter.expect(1'000);
  limiter.when_free([] {});
  EXPECT_TRUE(eventually([&] {
    while (Permit permit = limiter.try_acquire()) taken.push_back(std::move(permit));
    if (taken.size() < least) limiter.when_free([] {});
    return taken.size() >= least;
  }));
  return taken;
}

}  // namespace turnstile::test
