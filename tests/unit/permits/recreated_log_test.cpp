// A token log whose topic was deleted and created again, while the snapshots of the earlier one are still there.

#include <gtest/gtest.h>

#include "permits/domain_snapshots.hpp"
#include "tests/support/captured_log.hpp"
#include "tests/unit/permits/divided_fixture.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::test {
namespace {

using Sets = std::map<std::string, tokens::Count>;

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
  /// A snapshot that the earlier topic has left.
  void leave(tokens::Position last, const Sets& sets) {
    tokens::State state;
    state.last = last;
    for (const auto& [name, limit] : sets) state.limiters[name].set = limit;
    cluster.log->part(0)->save(tokens::save(state));
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
  for (int i = 1; i < 4; ++i) log.leave(i * 64, {{"psp", i}});
  log.leave(256, {{"psp", 0}});
  const auto domain = log.cluster.join();
  EXPECT_EQ(log.count("earlier topic"), 1U) << log.lines.str();
  EXPECT_EQ(log.count("turnstile limits set"), 1U) << log.lines.str();
  EXPECT_TRUE(log.shows(command("psp", 0))) << log.lines.str();
}

}  // namespace
}  // namespace turnstile::test
