#include <limits>
#include <map>
#include <mutex>

#include "permits/domain_limiter.hpp"
#include "turnstile/error.hpp"

namespace turnstile {
namespace {

/// A pool without a deadline: the whole limit belongs to this process.
std::shared_ptr<detail::PermitPool> open_pool(const std::string& name, std::int64_t limit) {
  auto pool = std::make_shared<detail::PermitPool>([] { return tokens::Micros{0}; }, [] {});
  pool->open_until(std::numeric_limits<tokens::Micros>::max());
  pool->order({tokens::Order::Kind::open, name, static_cast<tokens::Count>(limit)});
  return pool;
}

class LocalLimiters final : public ports::Limiters {
 public:
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    if (limit < 1) {
      throw Error(Code::limit_invalid, "limiter '" + name + "': a limit of " + std::to_string(limit) +
                                           " lets no handler run; it must be at least 1");
    }
    const std::lock_guard lock(mutex_);
    auto& [known, pool] = by_name_[name];
    if (!pool) {
      known = limit;
      pool = open_pool(name, limit);
    }
    if (known != limit) {
      throw Error(Code::limit_invalid, "limiter '" + name + "' has a limit of " + std::to_string(known) +
                                           " and cannot also have " + std::to_string(limit) +
                                           "; set the same limit wherever you name it, or name another limiter");
    }
    return std::make_shared<detail::DomainLimiter>(
        name, pool, [limit] { return ports::LimiterState{.limit = limit, .held = limit, .share = limit}; });
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::pair<std::int64_t, std::shared_ptr<detail::PermitPool>>> by_name_;
};

}  // namespace

std::shared_ptr<ports::Limiters> make_local_limiters() { return std::make_shared<LocalLimiters>(); }

}  // namespace turnstile
