// bin/simulate: runs many seeds, or one with a trace.

#include <charconv>
#include <chrono>
#include <cstring>
#include <iostream>
#include <string_view>

#include "tests/simulation/divided.hpp"
#include "tests/simulation/simulate.hpp"
#include "tokens/planted.hpp"

namespace {

using namespace turnstile::simulation;

constexpr std::string_view kUsage =
    R"(simulate [--seeds N]   runs N seeds on two threads (default: 10000), and says how often rare places were reached
         [--first S]   from seed S (default: 1)
simulate --seed S      runs one, and tells what happened in it
         [--without FAULT]… [--chaos-ms N]   as a failing seed is printed, once it was made smaller
         [--plant NAME]                      with a known bug in place
simulate --divided N [--first S]   runs N seeds in which the log is divided; N = 1 tells what happened
)";

struct Options {
  std::uint64_t seeds = 10'000;
  std::uint64_t first = 1;
  std::optional<Plan> plan;
  std::uint64_t divided = 0;
};

bool number(std::string_view text, std::uint64_t& into) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), into);
  return error == std::errc{} && end == text.data() + text.size();
}

template <class Names>
std::optional<std::size_t> find(const Names& names, std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return i;
  }
  return std::nullopt;
}

/// False: there is no such bug, or this build has none.
bool plant([[maybe_unused]] std::string_view name) {
#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS
  const auto found = find(turnstile::tokens::kPlantedNames, name);
  if (found) turnstile::tokens::planted = static_cast<turnstile::tokens::Planted>(*found);
  return found.has_value();
#else
  return false;
#endif
}

std::optional<Options> parse(int count, char** arguments) {
  Options options;
  for (int i = 1; i + 1 < count; i += 2) {
    const std::string_view name = arguments[i], value = arguments[i + 1];
    std::uint64_t parsed = 0;
    if (name == "--without") {
      const auto fault = find(kFaultNames, value);
      if (!fault || !options.plan) return std::nullopt;
      options.plan->faults.reset(*fault);
    } else if (name == "--plant") {
      if (!plant(value)) return std::nullopt;
    } else if (!number(value, parsed)) {
      return std::nullopt;
    } else if (name == "--seeds") {
      options.seeds = parsed;
    } else if (name == "--first") {
      options.first = parsed;
    } else if (name == "--divided") {
      options.divided = parsed;
    } else if (name == "--seed") {
      options.plan = plan_for(parsed);
    } else if (name == "--chaos-ms" && options.plan) {
      options.plan->chaos = static_cast<Time>(parsed) * kMillisecond;
    } else {
      return std::nullopt;
    }
  }
  return count % 2 == 1 ? std::optional{options} : std::nullopt;
}

int run_one(const Plan& plan) {
  Marks marks{};
  const auto why = run(plan, marks, &std::cout);
  std::cout << (why ? "BROKEN: " + *why : "All invariants hold.") << '\n';
  return why ? 1 : 0;
}

int run_all(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const Outcome outcome = run_many(options.first, options.seeds, 2);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  for (std::size_t i = 0; i < kMarkNames.size(); ++i) std::cout << outcome.marks[i] << "\t" << kMarkNames[i] << '\n';
  std::cout << outcome.runs << " seeds in " << seconds
            << " s: " << static_cast<std::uint64_t>(static_cast<double>(outcome.runs) / seconds * 60) << " a minute\n";
  if (!outcome.failure) {
    std::cout << "All invariants hold.\n";
    return 0;
  }
  std::cout << "BROKEN: " << outcome.failure->why << "\n  " << command_for(outcome.failure->plan) << std::endl;
  std::cout << "  smaller: " << command_for(shrink(outcome.failure->plan)) << '\n';
  return 1;
}

int run_all_divided(const Options& options) {
  if (options.divided == 1) {
    DividedMarks marks;
    const auto why = run_divided(options.first, marks, &std::cout);
    std::cout << (why ? "BROKEN: " + *why : "All invariants hold.") << '\n';
    return why ? 1 : 0;
  }
  const DividedOutcome outcome = run_many_divided(options.first, options.divided);
  if (outcome.seed) std::cout << "BROKEN: seed " << *outcome.seed << ": " << outcome.why << '\n';
  else std::cout << outcome.runs << " seeds: all invariants hold.\n";
  return outcome.seed ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
  const auto options = parse(count, arguments);
  if (!options) {
    std::cerr << kUsage;
    return 2;
  }
  if (options->divided > 0) return run_all_divided(*options);
  return options->plan ? run_one(*options->plan) : run_all(*options);
}
