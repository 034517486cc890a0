// The default ExpiryStrategy of a TokenService: a thread that looks at fixed intervals.

#include <memory>
#include <utility>

#include "support/periodic_thread.hpp"
#include "turnstile/token_service.hpp"

namespace turnstile {

namespace {

class Periodic final : public ExpiryStrategy {
 public:
  explicit Periodic(const PeriodicExpiry& settings) : settings_(settings) {}
  void start(Run run) override {
    run_ = std::move(run);
    thread_.start(detail::PeriodicThread::after(settings_.every));
  }
  void stop() override { thread_.stop(); }

 private:
  const PeriodicExpiry settings_;
  Run run_;
  detail::PeriodicThread thread_{[this] {
    run_(settings_.most_a_run, settings_.longest_run);
    return detail::PeriodicThread::after(settings_.every);
  }};
};

}  // namespace

std::unique_ptr<ExpiryStrategy> make_expiry(const PeriodicExpiry& settings) {
  return std::make_unique<Periodic>(settings);
}

}  // namespace turnstile
