#include "tests/contract/limiter_fixture.hpp"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <utility>

#include "tests/support/postgres_schema.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/kafka/limiters.hpp"
#include "turnstile/log.hpp"
#include "turnstile/postgres/limiters.hpp"
#include "turnstile/testing/token_log.hpp"

namespace turnstile::test {

namespace {

using namespace std::chrono_literals;

/// Members renew at a quarter of it. Beside other tests, a request to a server can take longer than a second.
constexpr std::chrono::milliseconds kLease = 5s;

class LocalFixture final : public LimiterFixture {
 public:
  std::shared_ptr<ports::Limiters> join() override { return make_local_limiters(); }
  std::chrono::milliseconds settles_in() const override { return 0ms; }
};

class PostgresFixture final : public LimiterFixture {
 public:
  std::shared_ptr<ports::Limiters> join() override { return open(schema_.settings()); }
  std::chrono::milliseconds settles_in() const override { return 300ms; }  // 15 poll intervals
  std::chrono::milliseconds lease() const override { return kLease; }
  std::shared_ptr<ports::Limiters> join_by_a_cable() override {
    const std::string port = schema_.sql().one("SELECT current_setting('port')");
    if (!proxy_) proxy_ = std::make_unique<TcpProxy>("127.0.0.1", std::stoi(port));
    return open(schema_.settings_through(proxy_->port()));
  }
  void cut(bool off) override {
    proxy_->stall(off);
    if (!off) proxy_->cut(false);  // data in the proxy is lost
  }
  void set_limit(const std::string& name, std::int64_t limit) override {
    postgres::set_limit(schema_.settings(), name, limit);
  }

 private:
  std::shared_ptr<ports::Limiters> open(const PostgresSettings& settings) const {
    postgres::LimiterSettings limiters;
    limiters.lease = lease();
    return postgres::open_limiters(settings, limiters, make_logger({"off", "text"}));
  }
  PostgresSchema schema_;
  std::unique_ptr<TcpProxy> proxy_;
};

/// Members of a token domain, over any log.
class DomainFixture : public LimiterFixture {
 public:
  std::chrono::milliseconds lease() const override { return kLease; }
  std::shared_ptr<ports::Limiters> join() override { return joined(open()); }
  void set_limit(const std::string& name, std::int64_t limit) override { open()->set_limit(name, limit, 20s); }

 protected:
  virtual std::shared_ptr<TokenDomain> open() = 0;
  TokenSettings tokens() const { return {.lease = lease()}; }
  static std::shared_ptr<TokenDomain> joined(std::shared_ptr<TokenDomain> domain) {
    domain->wait_until_joined(20s);
    return domain;
  }
};

class MemoryLogFixture final : public DomainFixture {
 public:
  std::chrono::milliseconds settles_in() const override { return 300ms; }
  std::shared_ptr<ports::Limiters> join_by_a_cable() override {
    cable_ = std::make_shared<testing::MemoryTokenCable>();
    return joined(over(cable_));
  }
  void cut(bool off) override { cable_->cut = off; }

 private:
  std::shared_ptr<TokenDomain> open() override { return over(nullptr); }
  std::shared_ptr<TokenDomain> over(std::shared_ptr<testing::MemoryTokenCable> cable) {
    return join_token_domain(std::make_unique<testing::MemoryTokenLog>(topic_, std::move(cable)), tokens(),
                             make_logger({"off", "text"}));
  }
  const std::shared_ptr<testing::MemoryTokenTopic> topic_ = std::make_shared<testing::MemoryTokenTopic>();
  std::shared_ptr<testing::MemoryTokenCable> cable_;
};

std::atomic<int> worlds{0};

class KafkaLogFixture final : public DomainFixture {
 public:
  std::chrono::milliseconds settles_in() const override { return 500ms; }

 private:
  std::shared_ptr<TokenDomain> open() override {
    return kafka::open_limiters({{"bootstrap.servers", std::getenv("TURNSTILE_TEST_KAFKA")}}, {.name = topic_},
                                tokens(), make_logger({"off", "text"}));
  }
  const std::string topic_ = "tokens-" + std::to_string(::getpid()) + "-" + std::to_string(++worlds);
};

template <class World>
std::unique_ptr<LimiterFixture> make_world() {
  return std::make_unique<World>();
}

std::optional<std::string> nothing_missing() { return std::nullopt; }
std::optional<std::string> kafka_missing() {
  const char* servers = std::getenv("TURNSTILE_TEST_KAFKA");
  if (servers != nullptr && *servers != 0) return std::nullopt;
  return "needs Apache Kafka: set TURNSTILE_TEST_KAFKA (./dev test does, with a broker of its own)";
}
std::optional<std::string> postgres_missing() {
  if (postgres_url()) return std::nullopt;
  return kNoPostgres;
}

}  // namespace

std::span<const LimiterBackend> limiter_backends() {
  static const LimiterBackend all[] = {
      {"local", false, nothing_missing, make_world<LocalFixture>},
      {"memory_log", true, nothing_missing, make_world<MemoryLogFixture>},
      {"kafka", true, kafka_missing, make_world<KafkaLogFixture>},
      {"postgres", true, postgres_missing, make_world<PostgresFixture>},
  };
  return all;
}

struct Calls::State {
  std::mutex mutex;
  std::condition_variable changed;
  int count = 0;
};

std::shared_ptr<Calls::State> Calls::make() { return std::make_shared<State>(); }

std::function<void()> Calls::counter() {
  return [state = state_] {
    const std::lock_guard lock(state->mutex);
    ++state->count;
    state->changed.notify_all();
  };
}

bool Calls::wait_for(int least, std::chrono::milliseconds patience) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, patience, [&] { return state_->count >= least; });
}

int Calls::count() {
  const std::lock_guard lock(state_->mutex);
  return state_->count;
}

Permit acquire(const std::shared_ptr<ports::Limiter>& limiter, std::chrono::milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  Permit permit = limiter->try_acquire();
  for (auto left = patience; !permit && left > 0ms;) {
    Calls woken;
    limiter->when_free(woken.counter());
    woken.wait_for(1, left);
    permit = limiter->try_acquire();
    left = std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  }
  return permit;
}

}  // namespace turnstile::test
