#include "count.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string>

#include "settings.hpp"

namespace demo {
namespace {

using namespace std::chrono_literals;

/// In seconds: far less than the lease of the permits.
constexpr double kSoonAfterRebalance = 10;
/// In seconds: after this time all processes have read the new limit.
constexpr double kLoweredSoon = 2;

class Verdict {
 public:
  explicit Verdict(Screen& screen) : screen_(screen) {}
  /// A line with the number, its meaning, and whether it is correct.
  void operator()(const std::string& what, const std::string& figure, bool held, const std::string& remark) {
    all_held_ = all_held_ && held;
    screen_.line(
        fmt::format("{:<36} {:>10}   {} {}", what, figure, held ? screen_.good("ok") : screen_.bad("WRONG:"), remark));
  }
  [[nodiscard]] bool all_held() const { return all_held_; }

 private:
  Screen& screen_;
  bool all_held_ = true;
};

void judge_fates(const Findings& found, const Fates& f, Verdict& verdict) {
  const std::int64_t again = f.delivered - found.published;
  verdict("delivered by Kafka", grouped(f.delivered), again >= 0,
          fmt::format("{} of them again, after the kill or a rebalance", grouped(again)));
  verdict("  took effect", grouped(f.in_effect), f.in_effect == found.distinct && found.effects.rows == found.distinct,
          "rows in PostgreSQL: one for each id");
  verdict("  refused as duplicates", grouped(f.refused), f.refused >= found.published - found.distinct,
          fmt::format("the {} second copies, and {} that came again", grouped(found.published - found.distinct),
                      grouped(f.refused - (found.published - found.distinct))));
  verdict("  died with the killed process", grouped(f.died), f.died > 0,
          "delivered to it without effect, and again to others");
  verdict("  handed on to another consumer", grouped(f.handed_on), f.handed_on >= 0,
          "they waited in a consumer when their partition moved");
  verdict("  unexplained", grouped(f.rest()), f.rest() == 0, "each delivery has one fate");
}

}  // namespace

Fates fates(const Findings& found, const Board& board) {
  Fates all;
  for (int consumer = 1; consumer <= kMostConsumers; ++consumer) {
    const Slot& slot = board.slot(consumer);
    const auto rows_of = found.effects.rows_of.find(consumer);
    const std::int64_t rows = rows_of == found.effects.rows_of.end() ? 0 : rows_of->second;
    all.delivered += slot.delivered;
    all.in_effect += rows;
    all.refused += slot.duplicates;
    all.handed_on += slot.handed_on;
    // A killed process reports nothing more. The rest of its deliveries counts as died, less its rows in PostgreSQL.
    if (consumer == found.killed) all.died += slot.delivered - rows - slot.duplicates - slot.handed_on;
  }
  return all;
}

bool judge(const Findings& found, const Board& board, Screen& screen) {
  Verdict verdict(screen);
  std::int64_t failed = 0;
  for (const Slot& slot : board.slots()) failed += slot.failed;

  verdict("records published", grouped(found.published), true, "all acknowledged by Kafka");
  verdict("different ids among them", grouped(found.distinct), true, "each may take effect once");
  judge_fates(found, fates(found, board), verdict);
  verdict("ids that took effect twice", grouped(found.effects.doubled), found.effects.doubled == 0,
          fmt::format("none allowed; plain consumer: {} of {}", grouped(found.control_effects.doubled),
                      grouped(found.control_effects.ids)));
  verdict("most handlers at once, in all", grouped(found.most_running), found.most_running == kHandlerLimit,
          fmt::format("the limit is {}; plain consumer: {}", kHandlerLimit, found.control_most_running));
  verdict("killed process's permits back after", fmt::format("{:.1f} s", found.permits_back),
          found.permits_back_after_rebalance < kSoonAfterRebalance,
          fmt::format("{:.1f} s after the rebalance; its lease would have lasted {} s",
                      found.permits_back_after_rebalance, kPermitLease / 1s));
  verdict(fmt::format("most at once with the limit at {}", kLoweredLimit), grouped(found.most_when_lowered),
          found.most_when_lowered == kLoweredLimit && found.lowered_after < kLoweredSoon,
          fmt::format("in effect {:.2f} s after it was lowered", found.lowered_after));
  verdict("running in the killed process", grouped(found.running_when_killed), found.running_when_killed > 0,
          "it died in the middle of its work");
  verdict("redelivered after the kill", grouped(board.redelivered()), board.redelivered() > 0,
          "delivered to the dead one, settled or not, and later to another");
  verdict("handlers that failed", grouped(failed), failed == 0, "none allowed");
  return verdict.all_held();
}

}  // namespace demo
