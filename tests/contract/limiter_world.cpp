#include "tests/contract/limiter_world.hpp"

#include <condition_variable>

#include "tests/support/postgres_schema.hpp"
#include "tests/support/tcp_proxy.hpp"
#include "turnstile/log.hpp"
#include "turnstile/postgres/limiters.hpp"

namespace turnstile::test {

namespace {

using namespace std::chrono_literals;

class LocalWorld final : public LimiterWorld {
 public:
  std::shared_ptr<Limiters> join() override { return make_local_limiters(); }
  std::chrono::milliseconds settles_in() const override { return 0ms; }
};

class PostgresWorld final : public LimiterWorld {
 public:
  std::shared_ptr<Limiters> join() override { return open(schema_.settings()); }
  std::chrono::milliseconds settles_in() const override { return 300ms; }  // 15 poll intervals
  std::chrono::milliseconds lease() const override { return 2s; }
  std::shared_ptr<Limiters> join_by_a_cable() override {
    const std::string port = schema_.sql().one("SELECT current_setting('port')");
    if (!proxy_) proxy_ = std::make_unique<TcpProxy>("127.0.0.1", std::stoi(port));
    return open(schema_.settings_through(proxy_->port()));
  }
  void cut(bool off) override {
    proxy_->stall(off);
    if (!off) proxy_->cut(false);  // what waited in the cable is gone
  }
  void set_limit(const std::string& name, std::int64_t limit) override {
    postgres::set_limit(schema_.settings(), name, limit);
  }

 private:
  std::shared_ptr<Limiters> open(const PostgresSettings& settings) const {
    postgres::LimiterSettings limiters;
    limiters.lease = lease();
    return postgres::open_limiters(settings, limiters, make_logger({"off", "text"}));
  }
  PostgresSchema schema_;
  std::unique_ptr<TcpProxy> proxy_;
};

template <class World>
std::unique_ptr<LimiterWorld> make_world() {
  return std::make_unique<World>();
}

std::optional<std::string> nothing_missing() { return std::nullopt; }
std::optional<std::string> postgres_missing() {
  if (postgres_url()) return std::nullopt;
  return kNoPostgres;
}

}  // namespace

std::span<const LimiterBackend> limiter_backends() {
  static const LimiterBackend all[] = {
      {"local", false, nothing_missing, make_world<LocalWorld>},
      {"postgres", true, postgres_missing, make_world<PostgresWorld>},
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

Permit acquire(const std::shared_ptr<Limiter>& limiter, std::chrono::milliseconds patience) {
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
