#include "turnstile/postgres/limiters.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <random>

#include "limits/limiter_worker.hpp"
#include "turnstile/error.hpp"
#include "turnstile/log.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

using namespace std::chrono_literals;

/// As over Kafka.
constexpr std::size_t kLongestLimiterName = 255;

/// The Limiters, its limiters, and through them their permits keep it alive. The last reference stops the worker.
class Office {
 public:
  explicit Office(std::shared_ptr<LimiterWorker> worker) : worker_(std::move(worker)) { worker_->start(); }
  ~Office() { worker_->stop(); }
  Office(const Office&) = delete;
  Office& operator=(const Office&) = delete;
  LimiterWorker& worker() { return *worker_; }

 private:
  const std::shared_ptr<LimiterWorker> worker_;
};

class PostgresLimiter final : public ports::Limiter {
 public:
  PostgresLimiter(std::shared_ptr<Office> office, std::shared_ptr<LimiterBook> book)
      : office_(std::move(office)), book_(std::move(book)) {}
  const std::string& name() const noexcept override { return book_->name(); }
  Permit try_acquire() override {
    auto taken = book_->try_take();
    if (taken.token == 0) return {};
    return {shared_from_this(), taken.token, std::move(taken.lost)};
  }
  std::function<bool()> acquire_later(std::int64_t /*count*/, Priority /*priority*/,
                                      std::function<void(Permit)> deliver) override {
    const auto request =
        book_->take_later([self = shared_from_this(), deliver = std::move(deliver)](LimiterBook::Taken taken) {
          deliver(Permit(self, taken.token, std::move(taken.lost)));
        });
    return [book = book_, request] { return book->withdraw(request); };
  }
  void when_free(std::function<void()> wake) override { book_->when_free(std::move(wake)); }
  ports::LimiterState state() const override { return book_->state(); }
  void expect(std::int64_t at_once) override { book_->expect(at_once); }

 protected:
  void release(std::uint64_t token) noexcept override { book_->give_back(token); }
  bool still_holds(std::uint64_t token) const noexcept override { return book_->holds(token); }

 private:
  const std::shared_ptr<Office> office_;
  const std::shared_ptr<LimiterBook> book_;
};

/// A name is a key of an index, and PostgreSQL stores only UTF-8 without NUL.
void check_name(const std::string& name) {
  if (!name.empty() && name.size() <= kLongestLimiterName && name == printable(name)) return;
  throw Error(Code::limit_invalid, fmt::format("limiter '{}': a name has 1 to {} bytes of UTF-8, without NUL",
                                               printable(name.substr(0, 40)), kLongestLimiterName));
}

class PostgresLimiters final : public ports::Limiters {
 public:
  explicit PostgresLimiters(std::shared_ptr<LimiterWorker> worker)
      : office_(std::make_shared<Office>(std::move(worker))) {}
  std::shared_ptr<ports::Limiter> open(const std::string& name, std::int64_t limit) override {
    if (limit < 1) {
      throw Error(Code::limit_invalid,
                  fmt::format("limiter '{}': a limit of {} lets no handler run; it must be at least 1", name, limit));
    }
    if (limit > kMostPermits) {
      throw Error(Code::limit_invalid, fmt::format("limiter '{}': a limit of {} is too high; it must be at most {}",
                                                   name, limit, kMostPermits));
    }
    check_name(name);
    return std::make_shared<PostgresLimiter>(office_, office_->worker().open(name, limit));
  }

 private:
  const std::shared_ptr<Office> office_;
};

std::string holder_name(const std::string& label) {
  std::string host(256, '\0');
  if (gethostname(host.data(), host.size() - 1) != 0) host = "unknown host";
  host.resize(std::min(host.size(), host.find('\0')));
  const auto name = label.empty() ? fmt::format("{}:{}", host, getpid()) : label;
  std::random_device random;
  return fmt::format("{}/{:08x}{:08x}", name, random(), random());
}

LimiterPace check(const LimiterSettings& settings) {
  std::vector<std::string> problems;
  if (settings.lease < 1s || settings.lease > 24h)
    problems.emplace_back("limiters: the lease must be from 1 s to 24 h");
  if (settings.poll_interval < 5ms || settings.poll_interval > settings.lease / 8) {
    problems.emplace_back("limiters: the poll interval must be from 5 ms to 1/8 of the lease");
  }
  if (settings.holder.find('\0') != std::string::npos)
    problems.emplace_back("limiters: the name of the holder must not have a NUL byte");
  if (!problems.empty()) throw ConfigError(std::move(problems));
  return {settings.lease, settings.poll_interval};
}

std::int64_t run(const PostgresSettings& settings, const std::function<void(Pipeline&)>& fill) {
  check_settings(settings);
  Link link(settings);
  try {
    fill(link.pipeline);
    Answers answers;
    link.pipeline.finish(answers);
    if (answers.failure) {
      const ServerError& error = answers.failure->error;
      if (error.sqlstate == "42501") throw_needs_owner(error, settings.schema, link.connection.user());
      throw_operator_error(error, settings.schema, link.connection.user());
    }
    return std::stoll(PQcmdTuples(answers.kept[0].get()));
  } catch (const ConnectionLost& lost) {
    throw_lost(lost);
  }
}

void must_be_known(std::int64_t rows, const PostgresSettings& settings, const std::string& limiter) {
  if (rows > 0) return;
  throw Error(Code::limiter_unknown,
              fmt::format("limiter '{}': no program has opened it in the schema {} yet", limiter, settings.schema));
}

}  // namespace

std::shared_ptr<ports::Limiters> open_limiters(const PostgresSettings& settings, const LimiterSettings& limiters,
                                               std::shared_ptr<spdlog::logger> logger) {
  check_settings(settings);
  const LimiterPace pace = check(limiters);
  if (!logger) logger = make_logger(LogSettings{});
  return std::make_shared<PostgresLimiters>(
      std::make_shared<LimiterWorker>(settings, pace, holder_name(limiters.holder), std::move(logger)));
}

void set_limit(const PostgresSettings& settings, const std::string& limiter, std::int64_t limit) {
  if (limit < 0 || limit > kMostPermits) {
    throw Error(Code::limit_invalid,
                fmt::format("limiter '{}': a limit of {} is invalid; it must be from 0 (paused) to {}", limiter, limit,
                            kMostPermits));
  }
  const auto rows = run(settings, [&](Pipeline& pipeline) {
    pipeline.arguments().add_text(limiter);
    pipeline.arguments().add_int(limit);
    pipeline.add(LimiterStatements(settings.schema).order, kCaller, Pipeline::Keep::text);
  });
  must_be_known(rows, settings, limiter);
}

void unset_limit(const PostgresSettings& settings, const std::string& limiter) {
  const auto rows = run(settings, [&](Pipeline& pipeline) {
    pipeline.arguments().add_text(limiter);
    pipeline.add(LimiterStatements(settings.schema).unorder, kCaller, Pipeline::Keep::text);
  });
  must_be_known(rows, settings, limiter);
}

}  // namespace turnstile::postgres
