// A fence gives the permits of a dead consumer back only where it also rejects what that consumer goes on to do.

#include "tests/unit/engine/engine_fixture.hpp"
#include "turnstile/ports/limiter.hpp"

namespace turnstile {
namespace {

using namespace test;

class AskedLimiters final : public ports::Limiters {
 public:
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    ++until_the_lease_ends;
    return local_->open(name, limit);
  }
  std::shared_ptr<ports::Limiter> open_for_partitions(const std::string& name, std::int64_t limit) override {
    ++until_fenced;
    return local_->open(name, limit);
  }
  std::atomic<int> until_the_lease_ends{0}, until_fenced{0};

 private:
  const std::shared_ptr<ports::Limiters> local_ = make_local_limiters();
};

class LimiterOf : public EngineTest {
 protected:
  /// Whether the permits of a handler of this pipeline return when its partition is fenced.
  bool returns_with_the_fence(const std::string& name, Pipeline pipeline) {
    topic(name, 1);
    publish(name, 1);
    const auto limiters = std::make_shared<AskedLimiters>();
    Consumer app(config(), Backends{broker, inbox, limiters});
    app.topic(name, std::move(pipeline) | limit("psp", 3)).handle_signals(false).logger(logger);
    auto thread = start(app);
    EXPECT_TRUE(eventually([&] { return all_committed(name, 1); })) << name << " " << failure;
    app.stop();
    thread.join();
    EXPECT_EQ(limiters->until_fenced + limiters->until_the_lease_ends, 1) << name;
    return limiters->until_fenced == 1;
  }
};

TEST_F(LimiterOf, a_mode_without_a_transaction_returns_permits_only_with_the_lease) {
  const auto handler = [](const Message&) {};
  EXPECT_TRUE(returns_with_the_fence("transactional", handler | transactional()));
  EXPECT_TRUE(returns_with_the_fence("by-offset", handler | by_offset()));
  EXPECT_FALSE(returns_with_the_fence("leased", handler | leased(5s)));
  EXPECT_FALSE(returns_with_the_fence("plain", Pipeline(handler)));
}

}  // namespace
}  // namespace turnstile
