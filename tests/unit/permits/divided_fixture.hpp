#pragma once
// Members of a domain over a log in memory that can be divided.

#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "permits/divided_domain.hpp"
#include "tests/unit/permits/token_domain_fixture.hpp"
#include "tokens/apply.hpp"
#include "tokens/parts.hpp"
#include "tokens/wire.hpp"
#include "turnstile/lease_clock.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile::test {

inline constexpr std::uint32_t kParts = 5;

struct DividedCluster {
  std::shared_ptr<testing::MemoryTokenParts> log = std::make_shared<testing::MemoryTokenParts>();
  std::shared_ptr<spdlog::logger> quiet = Cluster().quiet;
  TokenSettings settings{.lease = std::chrono::milliseconds(2'000)};

  std::shared_ptr<TokenDomain> join() {
    auto domain = join_token_domain(testing::open_parts(log), settings, quiet);
    EXPECT_TRUE(domain->wait_until_joined(std::chrono::seconds(20)));
    return domain;
  }
  std::unique_ptr<TokenReader> reader() {
    auto reader = std::make_unique<TokenReader>(testing::open_parts(log)(0), testing::open_parts(log));
    reader->start(reader->end());
    return reader;
  }
  void divide() { EXPECT_TRUE(reader()->divide(kParts, std::chrono::seconds(20))); }
};

inline Permit take_one(ports::Limiter& limiter) { return std::move(take_all(limiter, 1).front()); }

/// After the last record of the part.
inline tokens::State newest_state(testing::MemoryTokenParts& log, std::uint32_t part) {
  tokens::State directory;
  for (const auto& record : log.part(0)->from(0))
    tokens::apply(directory, record.position, tokens::decode(record.bytes));
  if (part == 0) return directory;
  tokens::State state = tokens::first_state(directory, part);
  for (const auto& record : log.part(part)->from(0))
    tokens::apply(state, record.position, tokens::decode(record.bytes));
  return state;
}

inline const PermitsView::Entry* find(const PermitsView& view, const std::string& name) {
  for (const auto& entry : view.limiters) {
    if (entry.limiter == name) return &entry;
  }
  return nullptr;
}

/// Passes all calls on to another log.
struct PassedOn : ports::TokenLog {
  explicit PassedOn(std::unique_ptr<ports::TokenLog> of) : log(std::move(of)) {}
  std::optional<Snapshot> snapshot(std::int64_t before) override { return log->snapshot(before); }
  std::uint32_t snapshot_parts() override { return log->snapshot_parts(); }
  std::optional<Snapshot> snapshot_of(std::uint32_t part) override { return log->snapshot_of(part); }
  std::int64_t begin() override { return log->begin(); }
  std::int64_t end() override { return log->end(); }
  void seek(std::int64_t position) override { log->seek(position); }
  std::vector<Record> read(std::chrono::milliseconds timeout) override { return log->read(timeout); }
  void append(std::string bytes) override { log->append(std::move(bytes)); }
  bool failed() override { return log->failed(); }
  [[nodiscard]] std::string why_failed() const override { return log->why_failed(); }
  void save(std::int64_t position, std::string bytes) override { log->save(position, std::move(bytes)); }
  [[nodiscard]] std::int64_t saved() const override { return log->saved(); }
  void trim(std::int64_t below) override { log->trim(below); }
  void wake() noexcept override { log->wake(); }
  void flush(std::chrono::milliseconds timeout) override { log->flush(timeout); }
  [[nodiscard]] std::string name() const override { return log->name(); }

  std::unique_ptr<ports::TokenLog> log;
};

/// A part that a test breaks.
struct Breakable final : PassedOn {
  Breakable(std::unique_ptr<ports::TokenLog> of, std::shared_ptr<std::atomic<bool>> breaks)
      : PassedOn(std::move(of)), is_broken(std::move(breaks)) {}
  std::vector<Record> read(std::chrono::milliseconds timeout) override {
    if (*is_broken) throw TokenLogBroken("part 0 is broken");
    return log->read(timeout);
  }

  const std::shared_ptr<std::atomic<bool>> is_broken;
};

/// The parts of the cluster, of which part 0 can break.
inline TokenLogParts breakable(const DividedCluster& cluster, const std::shared_ptr<std::atomic<bool>>& breaks) {
  return [parts = testing::open_parts(cluster.log), breaks](std::uint32_t part) -> std::unique_ptr<ports::TokenLog> {
    if (part > 0) return parts(part);
    return std::make_unique<Breakable>(parts(part), breaks);
  };
}

/// A domain of which the test makes the rounds, in place of its threads.
struct DomainByHand {
  DomainByHand(TokenLogParts parts, const DividedCluster& cluster)
      : domain(std::make_shared<detail::DividedDomain>(
            std::move(parts), cluster.settings, cluster.quiet,
            detail::DomainEnvironment{.clock = [this] { return LeaseClock::now_us() + suspended; },
                                      .next_id = detail::random_id},
            detail::DividedDomain::Hands{.start =
                                             [this](detail::DomainMember& member, std::uint32_t part) {
                                               member.attach();
                                               members[part] = &member;
                                             },
                                         .move_soon = [] {}})) {}
  ~DomainByHand() {
    for (const auto& [part, member] : members) member->detach();
  }
  DomainByHand(const DomainByHand&) = delete;
  DomainByHand& operator=(const DomainByHand&) = delete;
  /// A round of each member, and a step of the mover.
  void round() {
    for (const auto& [part, member] : members) member->round();
    domain->move();
  }
  /// Makes rounds until it has taken so many permits.
  std::vector<Permit> take(ports::Limiter& limiter, std::size_t count) {
    std::vector<Permit> taken;
    limiter.expect(static_cast<std::int64_t>(count));
    EXPECT_TRUE(eventually([&] {
      limiter.when_free([] {});
      round();
      while (Permit permit = limiter.try_acquire()) taken.push_back(std::move(permit));
      return taken.size() >= count;
    }));
    return taken;
  }

  tokens::Micros suspended = 0;  ///< for how long it was, in total
  std::map<std::uint32_t, detail::DomainMember*> members;
  std::shared_ptr<detail::DividedDomain> domain;
};

/// Limiters that live in different parts.
inline std::vector<std::string> names_in_different_parts(std::size_t count) {
  std::map<std::uint32_t, std::string> names;
  for (int i = 0; names.size() < count; ++i) {
    const std::string name = "limiter-" + std::to_string(i);
    names.emplace(tokens::part_of(name, kParts), name);
  }
  std::vector<std::string> all;
  for (const auto& [part, name] : names) all.push_back(name);
  return all;
}

}  // namespace turnstile::test
