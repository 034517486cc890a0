#include "tests/support/outside.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

namespace turnstile::test {

Outside::Outside(const std::string& folder, const std::map<pid_t, Nanos>& killed) {
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".journal") continue;
    const auto pid = static_cast<pid_t>(std::stol(entry.path().stem().string()));
    std::map<std::int64_t, std::size_t> open;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line) && !file.eof();) {
      std::istringstream words(line);
      char kind = 0;
      Nanos at = 0;
      words >> kind >> at;
      if (kind == 'S') {
        HandlerRun run{.pid = pid, .begin = at};
        words >> run.number >> run.partition >> run.epoch >> run.offset;
        open[run.number] = runs_.size();
        runs_.push_back(run);
      } else if (kind == 'E') {
        std::int64_t number = 0;
        std::string how;
        words >> number >> how;
        HandlerRun& run = runs_.at(open.at(number));
        run.end = at;
        run.stopped = how == "stopped";
      } else if (kind == 'F') {
        Claim claim{.pid = pid, .partition = 0, .epoch = 0, .at = at};
        words >> claim.partition >> claim.epoch;
        claims_.push_back(claim);
      }
    }
    const auto dead = killed.find(pid);
    if (dead == killed.end()) continue;
    for (HandlerRun& run : runs_) {
      if (run.pid == pid && !run.end) run.end = dead->second;
    }
  }
}

int Outside::running(pid_t pid) const {
  return static_cast<int>(
      std::count_if(runs_.begin(), runs_.end(), [&](const HandlerRun& run) { return run.pid == pid && !run.end; }));
}

std::optional<Nanos> Outside::first_begin(pid_t pid, Nanos since) const {
  std::optional<Nanos> first;
  for (const HandlerRun& run : runs_) {
    if (run.pid == pid && run.begin > since && (!first || run.begin < *first)) first = run.begin;
  }
  return first;
}

std::optional<Nanos> Outside::first_claim(pid_t pid, Nanos since) const {
  std::optional<Nanos> first;
  for (const Claim& claim : claims_) {
    if (claim.pid == pid && claim.at > since && (!first || claim.at < *first)) first = claim.at;
  }
  return first;
}

std::optional<Nanos> Outside::fenced_at(const HandlerRun& run) const {
  std::optional<Nanos> first;
  for (const Claim& claim : claims_) {
    if (claim.partition == run.partition && claim.epoch > run.epoch && (!first || claim.at < *first)) first = claim.at;
  }
  return first;
}

/// Calls `at` for each change, with the number of running handlers from then on, until it returns false.
void Outside::sweep(const Question& question, const std::function<bool(Nanos, int)>& at) const {
  std::vector<std::pair<Nanos, int>> steps;
  for (const HandlerRun& run : runs_) {
    if (question.pid && run.pid != *question.pid) continue;
    std::optional<Nanos> end = run.end;
    if (question.harmless) {
      if (const auto harmless = question.harmless(run); harmless && (!end || *harmless < *end)) end = harmless;
    }
    if (end && *end <= run.begin) continue;
    steps.emplace_back(run.begin, 1);
    if (end) steps.emplace_back(*end, -1);
  }
  std::sort(steps.begin(), steps.end());  // at the same time, ends come first
  int running = 0;
  bool told = false;
  for (const auto& [time, step] : steps) {
    // Includes handlers that ran already at `from`.
    if (time >= question.from && !told) {
      told = true;
      if (!at(question.from, running)) return;
    }
    running += step;
    if (time >= question.from && !at(time, running)) return;
  }
  if (!told) at(question.from, running);
}

int Outside::most(const Question& question) const {
  int most = 0;
  sweep(question, [&](Nanos, int running) {
    most = std::max(most, running);
    return true;
  });
  return most;
}

std::optional<Nanos> Outside::first_with(int count, const Question& question) const {
  std::optional<Nanos> first;
  sweep(question, [&](Nanos time, int running) {
    if (running >= count) first = time;
    return !first;
  });
  return first;
}

std::optional<Nanos> Outside::last_above(int count, const Question& question) const {
  std::optional<Nanos> last;
  bool above = false;
  sweep(question, [&](Nanos time, int running) {
    if (running > count || above) last = time;
    above = running > count;
    return true;
  });
  return last;
}

std::vector<Nanos> deadlines(const std::vector<LoggedEvent>& log, pid_t pid, std::chrono::milliseconds lease) {
  std::set<tokens::MemberId> lives;
  std::vector<Nanos> written;
  for (const LoggedEvent& record : log) {
    const auto* joined = std::get_if<tokens::Joined>(&record.event.body);
    if (joined != nullptr && static_cast<pid_t>(joined->pid) == pid) lives.insert(record.event.member);
    if (lives.contains(record.event.member)) written.push_back(record.created_ns);
  }
  std::sort(written.begin(), written.end());
  const Nanos patience = std::chrono::nanoseconds(lease).count() * 7 / 8;
  std::vector<Nanos> passed;
  for (std::size_t i = 0; i < written.size(); ++i) {
    if (i + 1 == written.size() || written[i + 1] - written[i] > patience) passed.push_back(written[i] + patience);
  }
  return passed;
}

}  // namespace turnstile::test
