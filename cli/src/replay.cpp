// turnstile dlq replay: publishes dead letters to their original topics (replayer.hpp).

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "command.hpp"
#include "dead_options.hpp"
#include "replayer.hpp"
#include "spool.hpp"
#include "text.hpp"
#include "turnstile/dead_reason.hpp"
#include "turnstile/error.hpp"

namespace turnstile::cli {

namespace {

struct ReplayOptions {
  std::int64_t number = 0;
  bool all = false;
  Decision again;
  Decision done;
  DeadOptions which;
  std::optional<std::int64_t> from;
  std::optional<std::string> rate;
  bool dry_run = false;
};

/// A SIGINT or SIGTERM that was delayed because it would leave a dead letter in doubt; 0: none.
volatile std::sig_atomic_t kept_signal = 0;

/// While this object lives, the first SIGINT or SIGTERM is delayed: call heed_signal() after its end. A second one, of
/// either kind, ends the process at once. A signal that the process ignores stays ignored.
class SignalsWait {
  using Action = struct sigaction;

 public:
  SignalsWait() {
    delay(SIGINT, interrupt_);
    delay(SIGTERM, end_);
  }
  ~SignalsWait() {
    sigaction(SIGINT, &interrupt_, nullptr);
    sigaction(SIGTERM, &end_, nullptr);
  }
  SignalsWait(const SignalsWait&) = delete;
  SignalsWait& operator=(const SignalsWait&) = delete;

 private:
  static void delay(int number, Action& before) {
    sigaction(number, nullptr, &before);
    if (before.sa_handler == SIG_IGN) return;
    Action action{};
    action.sa_handler = [](int received) {
      if (kept_signal == 0) {
        kept_signal = received;
      } else {
        std::signal(received, SIG_DFL);
        std::raise(received);  // delivered as soon as this function returns
      }
    };
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }

  Action interrupt_{}, end_{};
};

/// The delayed signal takes effect, if there is one.
void heed_signal() {
  const int number = kept_signal;
  kept_signal = 0;
  if (number != 0) std::raise(number);
}

/// Prints what became of each dead letter.
class Printer final : public Replayer::Listener {
 public:
  Printer(bool json, bool all) : json_(json), all_(all) {}

  void sent(const postgres::DeadSummary& dead, const TopicPartitionOffset& at, const std::string& caution) override {
    replayed_.add(
        {{"number", dead.number}, {"topic", at.at.topic}, {"partition", at.at.partition}, {"offset", at.offset}});
    if (json_) return;
    fmt::print("{} -> {}{}\n", dead.number, to_string(at), caution);
    std::fflush(stdout);
  }
  void was_faster(std::int64_t number, const std::string& why) override {
    if (!all_) throw Refusal(fmt::format("dead letter {}: {}; see: turnstile dlq show {}", number, why, number));
    changed_.add({{"number", number}, {"why", why}});
    if (!json_) fmt::print("{} skipped: {}\n", number, why);
  }
  void cannot_be_sent(std::int64_t number, const std::string& why) override {
    unsendable_.add({{"number", number}, {"why", why}});
    if (json_) return;
    fmt::print("{} skipped: {}\n", number, why);
    std::fflush(stdout);
  }
  void in_doubt(std::int64_t number, const std::string& why) override {
    doubts_.add({{"number", number}, {"why", why}});
    if (!json_) fmt::print("{} in doubt: {}\n", number, why);
    std::fflush(stdout);
  }
  void left_out(ReplayPart part, const std::string& reason) override {
    ++left_out_[{part, part == ReplayPart::in_doubt ? "" : reason}];
  }
  bool wait_until(Pace::Clock::time_point due) override {
    std::this_thread::sleep_until(due);
    return true;
  }
  void settled() override { heed_signal(); }
  std::shared_ptr<void> hold() override { return std::make_shared<SignalsWait>(); }

  void say_what_was_left_out() const {
    if (json_) return;
    if (replayed_.size() == 0 && left_out_.empty() && unsendable_.size() == 0 && doubts_.size() == 0 &&
        changed_.size() == 0)
      fmt::print("no dead letters that wait: nothing to replay\n");
    for (const auto& [part, letters] : left_out_)
      fmt::print("{} skipped: {}\n", count(letters, "dead letter"),
                 one_line(why_left_out(part.first, part.second), SIZE_MAX));
    if (unsendable_.size() > 0)
      fmt::print("{} skipped: cannot be sent back; the reasons are above, and they wait as before\n",
                 count(unsendable_.size(), "dead letter"));
    if (changed_.size() > 0)
      fmt::print("{} skipped: another operator was faster; the reasons are above\n",
                 count(changed_.size(), "dead letter"));
  }

  Exit finish() {
    if (json_) {
      fmt::print("{{\n");
      replayed_.print("replayed");
      if (all_) {
        fmt::print(",\n");
        unsendable_.print("cannot_be_sent");
        fmt::print(",\n");
        changed_.print("changed_meanwhile");
        fmt::print(",\n");
        doubts_.print("in_doubt");
      }
      fmt::print("\n}}\n");
    } else if (replayed_.size() > 1) {
      fmt::print("{} replayed\n", count(replayed_.size(), "dead letter"));
    }
    return doubts_.size() == 0 ? Exit::ok : Exit::problems;
  }

 private:
  bool json_, all_;
  Spool replayed_;
  Spool unsendable_;
  Spool changed_;  ///< by another operator
  Spool doubts_;   ///< since this replay
  LeftOut left_out_;
};

/// What `--all` would do.
Exit preview(const Global& global, const ReplayOptions& options, std::optional<std::chrono::nanoseconds> interval) {
  const Config config = load_settings(global);
  auto admin = open_admin(config);
  auto filter = dead_filter(admin, options.which);
  filter.from = options.from;
  const auto preview = preview_replay(config, admin, std::move(filter), options.which.reason.has_value(), interval);
  const auto& published = preview.published;
  if (global.json) {
    Json skipped = Json::array();
    for (const auto& [letters, why] : preview.skipped()) skipped.push_back({{"count", letters}, {"why", why}});
    print(Json{{"would_replay", published.letters},
               {"seconds", interval ? Json(preview.seconds) : Json(nullptr)},
               {"groups", to_json(published)},
               {"would_skip", skipped}});
    return Exit::ok;
  }
  fmt::print("{}would replay {}", groups_table(published), count(published.letters, "dead letter"));
  if (interval && published.letters > 0) {
    const std::chrono::seconds whole(static_cast<std::int64_t>(std::min(std::ceil(preview.seconds), 1e12)));
    fmt::print(" in {} at {}", text::age(whole), *options.rate);
  }
  fmt::print("\n");
  for (const auto& [letters, why] : preview.skipped())
    fmt::print("would skip {}: {}\n", count(letters, "dead letter"), why);
  return Exit::ok;
}

Exit replay_one(const ReplayOptions& options, Replayer& replayer, Printer& printer) {
  const auto dead = replayer.admin().load_dead(options.number);
  if (!dead)
    throw Error(Code::not_found, fmt::format("there is no dead letter {}; see: turnstile dlq list", options.number));
  require_replayable(dead->summary, options.again);
  replayer.one(*dead);
  heed_signal();
  return printer.finish();
}

Exit replay_all(const ReplayOptions& options, Replayer& replayer, Printer& printer,
                std::optional<std::chrono::nanoseconds> interval) {
  auto filter = dead_filter(replayer.admin(), options.which);
  filter.from = options.from;
  replayer.all(std::move(filter), options.which.reason.has_value(), interval);
  printer.say_what_was_left_out();
  return printer.finish();
}

/// The record was published: it only marks the row.
Exit settle(const Global& global, const ReplayOptions& options) {
  auto admin = open_admin(load_settings(global));
  const auto dead = admin.load_dead(options.number);
  if (!dead)
    throw Error(Code::not_found, fmt::format("there is no dead letter {}; see: turnstile dlq list", options.number));
  require_last_replay(dead->summary, options.done);
  if (!dead->summary.replay_in_doubt)
    throw Refusal(fmt::format("dead letter {} is not in doubt: no replay of it began without an end", options.number));
  if (!admin.settle_replay(dead->summary)) {
    throw Refusal(
        fmt::format("dead letter {}: another operator has replayed or settled it meanwhile; see: turnstile dlq show {}",
                    options.number, options.number));
  }
  if (global.json) print(Json{{"done", options.number}});
  else fmt::print("{} recorded as replayed; nothing was published\n", options.number);
  return Exit::ok;
}

Exit replay(const Global& global, const ReplayOptions& options) {
  if (options.all == (options.number != 0))
    throw UsageError("dlq replay: give the number of one dead letter, or --all");
  if (options.all && options.again) throw UsageError("dlq replay: --again goes with the number of one dead letter");
  const auto& which = options.which;
  if (!options.all && (which.handler || which.topic))
    throw UsageError("dlq replay: --handler and --topic go with --all");
  if (!options.all && which.reason) throw UsageError("dlq replay: --reason goes with --all");
  if (!options.all && options.from) throw UsageError("dlq replay: --from goes with --all");
  if (!options.all && which.any()) throw UsageError("dlq replay: --since, --until, --header and --text go with --all");
  if (!options.all && (options.rate || options.dry_run))
    throw UsageError("dlq replay: --rate and --dry-run go with --all");
  if (which.reason == to_text(DeadReason::forged))
    throw UsageError("dlq replay: a forged message is replayed only by its number, after you have examined it");
  if (which.reason) require_reason(*which.reason);
  std::optional<std::chrono::nanoseconds> interval;
  if (options.rate) interval = parse_rate(*options.rate);
  if (options.rate && !interval) {
    throw UsageError(
        fmt::format("--rate {}: not a rate; write a number from 1 to 1000000 and a unit, as in 100/s, 30/m or 5/h",
                    one_line(*options.rate, 40)));
  }
  if (options.done && (options.all || options.again))
    throw UsageError("dlq replay: --done goes with the number of one dead letter, and without --again");
  if (options.done) return settle(global, options);
  if (options.dry_run) return preview(global, options, interval);
  const Config config = load_settings(global);
  Printer printer(global.json, options.all);
  Replayer replayer(config, static_cast<bool>(options.again), printer);
  return options.all ? replay_all(options, replayer, printer, interval) : replay_one(options, replayer, printer);
}

}  // namespace

void add_replay(Verb dlq, Command& command) {
  const auto options = std::make_shared<ReplayOptions>();
  const auto verb =
      dlq.add_verb("replay", "publish a dead letter to the topic that it came from; the inbox decides whether it runs");
  verb.add_option("NUMBER", options->number, "as dlq list has it").whole_number(1);
  verb.add_flag("--all", options->all,
                "all that wait when the replay starts; a later letter waits for the next replay");
  verb.add_flag("--again", options->again.given,
                "although it was replayed already; if its replay is in doubt: --again=TOKEN, as dlq show names it");
  verb.add_flag(
      "--done", options->done.given,
      "publish nothing: record that it was replayed, if that is in doubt: --done=TOKEN, as dlq show names it");
  add_dead_options(verb, options->which);
  verb.add_option("--rate", options->rate, "with --all: not faster than this: 100/s, 30/m, 5/h").type("N/s");
  verb.add_flag("--dry-run", options->dry_run,
                "with --all: publish nothing; print how many it would publish, and how long that takes");
  verb.add_option("--from", options->from, "with --all: none with a lower number, so that older letters go on waiting")
      .type("NUMBER")
      .whole_number(1);
  verb.runs(command, [options](const Global& global) { return replay(global, *options); });
}

}  // namespace turnstile::cli
