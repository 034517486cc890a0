// turnstile top: a live screen of topics, limiters, and whatever is stalled. It asks Kafka, the token log and
// PostgreSQL, and is no member of the group.

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <utility>

#include "command.hpp"
#include "domain.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "top/fit.hpp"
#include "top/keys.hpp"
#include "top/screen.hpp"
#include "top/terminal.hpp"
#include "top/watch.hpp"

namespace turnstile::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kTick{1'000};
/// How long a result stays on the screen.
constexpr milliseconds kResult{15'000};

struct TopOptions {
  std::vector<std::string> topics;
  DomainOptions domain;
  std::string stall_after = "10s";
  bool once = false;
};

top::Watch::Options watch_options(const TopOptions& options) {
  return {.topics = options.topics, .log = options.domain.topic, .stall_after = *parse_duration(options.stall_after)};
}

/// A descriptor that other threads make readable.
class Bell {
 public:
  Bell() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
  }
  ~Bell() { close(descriptor_); }
  Bell(const Bell&) = delete;
  Bell& operator=(const Bell&) = delete;
  void ring() const { eventfd_write(descriptor_, 1); }
  void silence() const {
    eventfd_t count = 0;
    eventfd_read(descriptor_, &count);
  }
  [[nodiscard]] int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_;
};

// --- once ---

Exit print_once(const Global& global, const Config& config, const TopOptions& options) {
  const Bell bell;
  top::Watch watch(config, watch_options(options), [&bell] { bell.ring(); });
  do {
    pollfd ready{bell.descriptor(), POLLIN, 0};
    poll(&ready, 1, 100);
    bell.silence();
    watch.refresh();
  } while (!watch.knows_enough());
  watch.give_up();
  const auto model = watch.model();
  if (global.json) {
    print(to_json(model, iso(top::utc())));
  } else {
    for (const auto& line : draw(model, {.rows = 0, .keys = false})) fmt::print("{}\n", line);
  }
  const Exit exit = watch.any_unavailable() ? Exit::unreachable : Exit::ok;
  watch.end(static_cast<int>(exit));
  return exit;
}

// --- live ---

class Live {
 public:
  Live(top::Watch& watch, top::Terminal& terminal) : watch_(watch), terminal_(terminal) { model_ = watch_.model(); }

  [[nodiscard]] bool ended() const noexcept { return ended_; }
  void end() { ended_ = true; }
  void draw_again() { dirty_ = true; }

  void refresh() {
    const bool fresh = watch_.refresh();
    if (auto result = watch_.take_result()) {
      result_ = top::escaped(*result);
      result_until_ = steady_clock::now() + kResult;
      dirty_ = true;
    }
    // Between two samples only the times on the screen change.
    dirty_ |= fresh || steady_clock::now() >= drawn_ + kTick;
  }

  void draw_if_needed() {
    if (!dirty_ || !terminal_.idle()) return;
    dirty_ = false;
    drawn_ = steady_clock::now();
    if (!view_.paused) model_ = watch_.model();
    const auto size = terminal_.size();
    view_.columns = size.columns;
    view_.rows = size.rows;
    if (drawn_ >= result_until_) result_.clear();
    view_.prompt = dialog_.open() ? dialog_.question(model_.limiters, size.columns) : result_;
    terminal_.show(draw(model_, view_), size);
  }

  void press(const top::Key& key) {
    dirty_ = true;
    if (dialog_.open()) {
      if (const auto change = dialog_.press(key, model_.limiters)) {
        watch_.change(*change);
        result_ = "setting the limit of " + top::escaped(change->limiter) + " …";
        result_until_ = steady_clock::now() + 2 * kResult;
      }
      return;
    }
    result_.clear();
    const bool helped = std::exchange(view_.help, false);
    if (key.kind != top::Key::Kind::character) return;
    switch (key.character) {
      case 'q': ended_ = true; return;
      case 's': view_.sort = top::next(view_.sort); return;
      case 'p': view_.paused = !view_.paused; return;
      case 'm': view_.by_process = !view_.by_process; return;
      case 'l': dialog_.begin(); return;
      case 'h':
      case '?': view_.help = !helped; return;
      default: return;
    }
  }

 private:
  top::Watch& watch_;
  top::Terminal& terminal_;
  top::Model model_;
  top::View view_;
  top::LimitDialog dialog_;
  std::string result_;
  steady_clock::time_point result_until_{}, drawn_{};
  bool dirty_ = true, ended_ = false;
};

void heed(const std::vector<int>& signals, top::Terminal& terminal, Live& live) {
  for (const int signal : signals) {
    switch (signal) {
      case SIGTSTP:
        terminal.leave();
        raise(SIGSTOP);  // SIGTSTP itself is blocked; the shell sees the same
        [[fallthrough]];
      case SIGCONT: terminal.enter(); [[fallthrough]];
      case SIGWINCH: live.draw_again(); break;
      default: live.end();
    }
  }
}

Exit show_live(const Config& config, const TopOptions& options) {
  const top::Signals signals;  // before any thread
  const Bell bell;
  top::Watch watch(config, watch_options(options), [&bell] { bell.ring(); });
  {
    top::Terminal terminal;
    top::KeyParser keys;
    Live live(watch, terminal);
    while (!live.ended()) {
      live.refresh();
      live.draw_if_needed();
      std::array<pollfd, 4> ready{{{STDIN_FILENO, POLLIN, 0},
                                   {signals.descriptor(), POLLIN, 0},
                                   {bell.descriptor(), POLLIN, 0},
                                   {terminal.idle() ? -1 : terminal.output(), POLLOUT, 0}}};
      poll(ready.data(), ready.size(), static_cast<int>(kTick.count()));
      bell.silence();
      if (ready[3].revents != 0) terminal.flush();
      heed(signals.take(), terminal, live);
      if (ready[0].revents == 0) continue;
      bool hung_up = false;
      for (const auto& key : keys.parse(terminal.read(hung_up))) live.press(key);
      if (hung_up) live.end();
    }
  }
  watch.end(static_cast<int>(Exit::ok));
  return Exit::ok;
}

Exit top_verb(const Global& global, const TopOptions& options) {
  if (!parse_duration(options.stall_after)) {
    throw UsageError(fmt::format("--stall-after {}: write 500ms, 30s or 2m", one_line(options.stall_after, 60)));
  }
  if (!options.once) {
    if (global.json) throw UsageError("top: a screen is no JSON; use --once --json, which prints one and ends");
    if (const auto why = top::Terminal::why_not(); !why.empty())
      throw UsageError(fmt::format("top: {}; use --once, which prints one screen and ends", why));
  }
  const Config config = load_settings(global);
  if (!config.postgres || config.postgres->url.empty()) require_kafka(config);
  return options.once ? print_once(global, config, options) : show_live(config, options);
}

}  // namespace

void add_top(Verb app, Command& command) {
  const auto options = std::make_shared<TopOptions>();
  const auto verb = app.add_verb("top", "a live screen: topics with rate and lag, limiters, and whatever is stalled");
  verb.add_option("TOPIC", options->topics,
                  "these topics only (default: those of the configuration, and those that the group has read "
                  "according to the database)");
  add_domain_options(verb, options->domain);
  verb.add_option("--stall-after", options->stall_after, "a partition with lag and without a commit is stalled then")
      .type("TIME")
      .shows_default();
  verb.add_flag("--once", options->once, "print one screen and end; with --json for scripts");
  verb.footer(
      "Keys: s sorts, p pauses the screen, l changes a limit, m shows limiters by process, h helps, q quits.\n"
      "Rates and lags are of committed offsets. What only consumers know (done, duplicates, retried) is in their /metrics.\n"
      "--once watches for 2 s, or for --stall-after if a partition stands still; with many topics it waits while Kafka makes\n"
      "progress. Exit code 3: a source is unavailable, and\n"
      "the rest is shown.");
  verb.runs(command, [options](const Global& global) { return top_verb(global, *options); });
}

}  // namespace turnstile::cli
