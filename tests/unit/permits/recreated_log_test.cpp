// A token log whose topic was deleted and created again, while the snapshots of the earlier one are still there.

#include <gtest/gtest.h>

#include <utility>

#include "permits/domain_snapshots.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/permits/divided_fixture.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::test {
namespace {

using Sets = std::map<std::string, tokens::Count>;

constexpr std::uint64_t kEarlierDivision = 4'711;

/// A log of which a member also sees the snapshots of the other parts.
struct WithSnapshots final : PassedOn {
  WithSnapshots(std::shared_ptr<testing::MemoryTokenParts> all, std::uint32_t part)
      : PassedOn(testing::open_parts(all)(part)), parts(std::move(all)) {}
  std::uint32_t snapshot_parts() override { return kParts; }
  std::optional<Snapshot> snapshot_of(std::uint32_t part) override { return parts->part(part)->snapshot(kNewest); }
  std::vector<Record> read(std::chrono::milliseconds timeout) override {
    return is_silent ? std::vector<Record>() : log->read(timeout);
  }

  const std::shared_ptr<testing::MemoryTokenParts> parts;
  bool is_silent = false;
};

std::string command(const std::string& limiter, tokens::Count limit) {
  tokens::State state;
  state.limiters[limiter].set = limit;
  return detail::commands_of_operators(state);
}

struct RecreatedLog {
  DividedCluster cluster;
  CapturedLog lines;

  RecreatedLog() {
    cluster.quiet = std::make_shared<spdlog::logger>("recreated", lines.sink());
    cluster.quiet->set_pattern("%v");
  }
  /// A snapshot that the earlier topic has left. `parts`: of the earlier log.
  void leave(std::uint32_t part, tokens::Position last, const Sets& sets, std::uint32_t parts = kParts) {
    tokens::State state;
    state.part = part;
    state.parts = parts;
    state.division = parts > 1 ? kEarlierDivision : 0;
    state.last = last;
    for (const auto& [name, limit] : sets) state.limiters[name].set = limit;
    cluster.log->part(part)->save(tokens::save(state));
  }
  std::shared_ptr<TokenDomain> join() {
    auto domain = join_token_domain(
        [log = cluster.log](std::uint32_t part) { return std::make_unique<WithSnapshots>(log, part); },
        cluster.settings, cluster.quiet);
    EXPECT_TRUE(domain->wait_until_joined(std::chrono::seconds(20)));
    return domain;
  }
  [[nodiscard]] std::size_t count(const std::string& text) const {
    const std::string all = lines.str();
    std::size_t found = 0;
    for (auto at = all.find(text); at != std::string::npos; at = all.find(text, at + 1)) ++found;
    return found;
  }
  [[nodiscard]] bool shows(const std::string& text) const { return count(text) > 0; }
};

TEST(RecreatedLog, the_newest_of_several_old_snapshots_is_reported_once) {
  RecreatedLog log;
  for (int i = 1; i < 4; ++i) log.leave(0, i * 64, {{"psp", i}}, 1);
  log.leave(0, 256, {{"psp", 0}}, 1);
  const auto domain = log.join();
  EXPECT_EQ(log.count("earlier topic"), 1U) << log.lines.str();
  EXPECT_EQ(log.count("turnstile limits set"), 1U) << log.lines.str();
  EXPECT_TRUE(log.shows(command("psp", 0))) << log.lines.str();
  EXPECT_FALSE(log.shows("divide")) << log.lines.str();
}

TEST(RecreatedLog, the_limits_of_all_parts_of_a_divided_log_are_reported_in_one_line) {
  RecreatedLog log;
  const auto names = names_in_different_parts(3);
  const auto home = [](const std::string& name) { return tokens::part_of(name, kParts); };
  log.leave(home(names[0]), 64, {{names[0], 3}});
  log.leave(home(names[0]), 128, {{names[0], 0}});
  log.leave(home(names[1]), 64, {{names[1], 7}});
  const auto domain = log.join();
  EXPECT_EQ(log.count("earlier topic"), 1U) << log.lines.str();
  EXPECT_TRUE(log.shows(command(names[0], 0))) << log.lines.str();
  EXPECT_TRUE(log.shows(command(names[1], 7))) << log.lines.str();
  EXPECT_EQ(log.count("turnstile limits set"), 2U) << log.lines.str();
  EXPECT_TRUE(log.shows("turnstile limits divide " + std::to_string(kParts))) << log.lines.str();
}

TEST(RecreatedLog, a_limiter_is_reported_by_its_home_if_that_has_a_snapshot) {
  RecreatedLog log;
  const auto names = names_in_different_parts(2);
  log.leave(0, 64, {{names[0], 5}, {names[1], 6}}, 1);
  log.leave(tokens::part_of(names[0], kParts), 64, {{names[0], 0}});
  const auto domain = log.join();
  EXPECT_TRUE(log.shows(command(names[0], 0))) << log.lines.str();
  EXPECT_TRUE(log.shows(command(names[1], 6))) << log.lines.str();
  EXPECT_EQ(log.count("turnstile limits set"), 2U) << log.lines.str();
}

TEST(RecreatedLog, snapshots_of_a_topic_before_the_earlier_one_are_not_mixed_in) {
  RecreatedLog log;
  const auto names = names_in_different_parts(2);
  log.leave(1, 64, {{names[0], 5}});
  tokens::State older;
  older.part = 4;
  older.parts = kParts;
  older.division = kEarlierDivision + 1;
  older.limiters[names[1]].set = 6;
  log.cluster.log->part(4)->save(tokens::save(older));
  const auto domain = log.join();
  EXPECT_EQ(log.count("turnstile limits set"), 1U) << log.lines.str();
  EXPECT_TRUE(log.shows(command(names[0], 5))) << log.lines.str();
}

TEST(RecreatedLog, each_part_of_a_log_that_was_divided_again_reports_its_own_limits) {
  RecreatedLog log;
  const auto names = names_in_different_parts(2);
  const std::uint32_t home = tokens::part_of(names[0], kParts);
  log.leave(0, 64, {{names[0], 5}});
  for (int i = 3; i >= 0; --i) log.leave(home, 256 - i, {{names[0], i}});
  log.cluster.divide();
  const auto domain = log.join();
  EXPECT_FALSE(log.shows("earlier topic")) << log.lines.str();
  (void)take_all(*domain->open(names[0], 2), 2);
  EXPECT_EQ(log.count("earlier topic"), 1U) << log.lines.str();
  EXPECT_EQ(log.count("turnstile limits set"), 1U) << log.lines.str();
  EXPECT_TRUE(log.shows(command(names[0], 0))) << log.lines.str();
  EXPECT_FALSE(log.shows("trying the one before it")) << log.lines.str();
}

TEST(RecreatedLog, an_undivided_log_that_was_divided_after_its_deletion_reports_its_limits) {
  RecreatedLog log;
  log.leave(0, 64, {{"psp", 0}}, 1);
  log.cluster.divide();
  const auto domain = log.join();
  EXPECT_EQ(log.count("earlier topic"), 1U) << log.lines.str();
  EXPECT_TRUE(log.shows(command("psp", 0))) << log.lines.str();
  EXPECT_FALSE(log.shows("limits divide")) << log.lines.str();
}

/// Part 0 of a log that was divided early never gets a snapshot.
TEST(RecreatedLog, a_divided_log_is_no_new_one) {
  RecreatedLog log;
  const auto names = names_in_different_parts(1);
  log.cluster.divide();
  tokens::State state = newest_state(*log.cluster.log, tokens::part_of(names[0], kParts));
  state.limiters[names[0]].set = 0;
  log.cluster.log->part(state.part)->save(tokens::save(state));
  const auto domain = log.join();
  EXPECT_FALSE(log.shows("earlier topic")) << log.lines.str();
}

TEST(RecreatedLog, a_log_that_cannot_be_read_to_its_end_is_no_new_one) {
  RecreatedLog log;
  const auto names = names_in_different_parts(1);
  log.leave(tokens::part_of(names[0], kParts), 64, {{names[0], 0}});
  log.cluster.log->part(0)->append("a record");
  auto silent = std::make_unique<WithSnapshots>(log.cluster.log, 0);
  silent->is_silent = true;
  const auto domain = join_token_domain(std::move(silent), log.cluster.settings, log.cluster.quiet);
  EXPECT_FALSE(log.shows("earlier topic")) << log.lines.str();
}

}  // namespace
}  // namespace turnstile::test
