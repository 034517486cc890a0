#include "view.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "screen.hpp"
#include "settings.hpp"

namespace demo {
namespace {

std::string row(const Board& board, const Processes& processes, int consumer) {
  const Slot& slot = board.slot(consumer);
  const pid_t pid = processes.pid(consumer);
  if (pid == 0 && slot.starts == 0) return fmt::format("{:<8}   {:<7}", consumer, "-");
  const auto running = slot.running();
  const std::string owned = pid != 0 ? fmt::format("{}", fmt::join(numbers_in(slot.assigned), " ")) : "-";
  // The slot of a killed process still counts its started handlers, but they no longer run.
  const std::string handlers = pid != 0 ? fmt::format("{} {:>2}", bar(running, kHandlerLimit, kHandlerLimit), running)
                                        : fmt::format("{:>2} died with it", running);
  return fmt::format("{:<8}   {:<7}   {:<11}   {:<15}       {:>9}   {:>11}   {:>10}", consumer,
                     pid != 0 ? std::to_string(pid) : "killed", owned, handlers, grouped(slot.delivered),
                     grouped(slot.done), grouped(slot.duplicates));
}

}  // namespace

std::vector<int> numbers_in(std::uint32_t bits) {
  std::vector<int> numbers;
  for (int p = 0; p < kPartitions; ++p) {
    if ((bits >> static_cast<unsigned>(p) & 1U) != 0) numbers.push_back(p);
  }
  return numbers;
}

View consumer_view(const Board& board, const Processes& processes, const Findings& found, int limit, double seconds) {
  std::vector<std::string> lines{
      "consumer   process   partitions    handlers running     delivered   took effect   duplicates"};
  std::string brief = fmt::format("{:5.1f} s", seconds);
  for (int consumer = 1; consumer <= kMostConsumers; ++consumer) {
    lines.push_back(row(board, processes, consumer));
    const Slot& slot = board.slot(consumer);
    if (processes.pid(consumer) != 0)
      brief += fmt::format(" | #{} runs {}, {} took effect", consumer, slot.running(), grouped(slot.done));
    else if (slot.starts > 0) brief += fmt::format(" | #{} killed, {} took effect", consumer, grouped(slot.done));
  }
  lines.push_back(fmt::format("in all processes       [{}]  {}; the limit is {}",
                              bar(board.running(), kHandlerLimit, 30), board.running(), limit));
  lines.push_back(fmt::format("effects in PostgreSQL  [{}]  {} of {} ids, {} of them twice",
                              bar(found.effects.ids, found.distinct, 30), grouped(found.effects.ids),
                              grouped(found.distinct), grouped(found.effects.doubled)));
  const Fates f = fates(found, board);
  lines.push_back(
      fmt::format("delivered {} = {} in effect + {} duplicates + {} died with the killed + {} handed on + {} in hand",
                  grouped(f.delivered), grouped(f.in_effect), grouped(f.refused), grouped(f.died), grouped(f.handed_on),
                  grouped(std::max<std::int64_t>(0, f.rest()))));
  brief += fmt::format(" | {} of {} at once | effects {} of {}", board.running(), limit, grouped(found.effects.ids),
                       grouped(found.distinct));
  return {lines, brief};
}

View control_view(const Board& board, const Processes& processes, const Ledger::Count& effects, double seconds) {
  std::vector<std::string> lines{
      "plain consumer   process   partitions    handlers running     delivered    rows made"};
  for (int consumer = 1; consumer <= kFirstConsumers; ++consumer) {
    const Slot& slot = board.slot(consumer);
    lines.push_back(fmt::format("{:<14}   {:<7}   {:<11}   {} {:>2}       {:>9}   {:>10}", consumer,
                                processes.pid(consumer), fmt::format("{}", fmt::join(numbers_in(slot.assigned), " ")),
                                bar(slot.running(), kHandlerLimit, kHandlerLimit), slot.running(),
                                grouped(slot.delivered), grouped(slot.done)));
  }
  const int running = board.running();
  lines.push_back(fmt::format("in all processes       [{}]  {}; the limit is {}",
                              bar(running, kFirstConsumers * kHandlerLimit, 36), running, kHandlerLimit));
  lines.push_back(fmt::format("rows in PostgreSQL      {} for {} ids, {} of them twice", grouped(effects.rows),
                              grouped(effects.ids), grouped(effects.doubled)));
  return {lines, fmt::format("{:5.1f} s | plain: {} handlers at once | {} rows for {} ids, {} of them twice", seconds,
                             running, grouped(effects.rows), grouped(effects.ids), grouped(effects.doubled))};
}

}  // namespace demo
