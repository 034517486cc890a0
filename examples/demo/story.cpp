#include "story.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <future>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <turnstile/kafka/admin.hpp>
#include <turnstile/kafka/limiters.hpp>
#include <turnstile/kafka/mock.hpp>
#include <turnstile/postgres/migrations.hpp>
#include <turnstile/token_reader.hpp>

#include "board.hpp"
#include "count.hpp"
#include "folder.hpp"
#include "ledger.hpp"
#include "processes.hpp"
#include "screen.hpp"
#include "settings.hpp"
#include "shop.hpp"
#include "view.hpp"

namespace demo {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// For `turnstile limits history`.
constexpr const char* kOperator = "the demo";
constexpr int kVictim = 2;
constexpr int kReplacement = 4;
/// The records are published in this many parts. Each step that needs work publishes a part, so its work cannot be done
/// already.
constexpr std::size_t kShares = 4;
/// The victim is killed after it has handled this part of the first records' ids, or kMostBeforeKill ids.
constexpr std::int64_t kKillPart = 12;
constexpr std::int64_t kMostBeforeKill = 200;
/// How long the demo observes the lowered limit.
constexpr auto kLoweredFor = 3s;

std::atomic<bool> interrupted{false};

/// SIGINT and SIGTERM end the story at its next check, so that it removes what it created. A second signal ends the
/// process at once.
void end_on_signals() {
  struct sigaction action {};
  action.sa_handler = [](int) { interrupted = true; };
  action.sa_flags = static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, nullptr);
  ::sigaction(SIGTERM, &action, nullptr);
}

class Story {
 public:
  explicit Story(const StoryOptions& options);
  ~Story();
  Story(const Story&) = delete;
  Story& operator=(const Story&) = delete;
  int tell();

 private:
  void prepare();
  void create_topic(const std::string& name);
  [[nodiscard]] std::chrono::milliseconds session() const { return mock_ ? kEmbeddedSessionTimeout : kSessionTimeout; }
  void write_config();
  /// Runs the first records on a consumer without Turnstile.
  void run_control();
  void start(int consumer);
  void start_plain(int consumer);
  void show_first_consumers();
  void publish_first();
  /// Publishes the next part of the records while the story continues. The next watch() throws its error.
  void publish_share();
  /// Waits until Kafka has acknowledged the published records. Throws the publisher's error.
  void wait_for_publisher();
  [[nodiscard]] bool publisher_is_done() const;
  void kill_one();
  void replace_it();
  void lower_the_limit();
  void finish();
  int judge();

  enum class Needs { nothing, work };
  /// Shows the view until `over`. Throws if that takes longer than --timeout and `extra`, if a consumer dies, and if a
  /// condition needs work and none is left.
  void watch(const std::string& what, const std::function<bool()>& over, Needs needs = Needs::nothing,
             std::chrono::seconds extra = 0s);
  /// Throws: the step cannot continue because of `problem`. It adds the last state, and keeps the logs.
  [[noreturn]] void give_up(const std::string& problem, const std::string& advice);
  /// For a step that takes too long.
  [[noreturn]] void give_up_waiting(const std::string& problem);
  [[nodiscard]] std::string seen() const;
  /// Three times the handlers' time for `effects`, if `at_once` of them run at once.
  [[nodiscard]] std::chrono::seconds time_for(std::int64_t effects, int at_once) const;
  void remove_topics();
  void draw();
  /// Whether every partition has exactly one owner among these consumers, and each of them owns some.
  [[nodiscard]] static bool shared_among(const Board& board, const std::vector<int>& consumers);
  [[nodiscard]] bool shared_among(const std::vector<int>& consumers) const { return shared_among(board_, consumers); }
  void say_what_is_kept();
  void say_how_to_look();

  StoryOptions options_;
  Screen screen_;
  Folder folder_;
  std::string name_;  ///< of the topic and the group
  std::string schema_;
  std::vector<std::string> topics_;  ///< to be deleted at the end; the topics of the embedded broker end with it
  std::unique_ptr<turnstile::kafka::MockBroker> mock_;
  turnstile::kafka::Settings kafka_;
  Ledger ledger_;
  std::vector<Order> orders_;
  Findings found_;
  std::size_t shares_published_ = 0;
  std::size_t published_ = 0;       ///< of orders_; some may not be acknowledged yet
  std::int64_t ids_published_ = 0;  ///< ids in the published part of orders_
  std::chrono::milliseconds handler_time_;
  Board board_;
  Board control_board_;
  std::unique_ptr<Shop> shop_, control_shop_;
  std::future<void> publishing_;
  Processes processes_;  // after the board and the folder, so that it is destroyed first
  Processes control_;
  bool in_control_ = false;  ///< the view shows the plain consumer
  Clock::time_point began_ = Clock::now();
  std::int64_t control_ids_ = 0;  ///< different ids among the plain consumer's records
  int limit_ = kHandlerLimit;     ///< as the view shows it
};

/// Next to this program if it was built there, otherwise found by the shell.
std::string turnstile_tool() {
  std::error_code error;
  const auto here = std::filesystem::read_symlink("/proc/self/exe", error).parent_path() / "turnstile";
  return !error && std::filesystem::exists(here, error) ? here.string() : "turnstile";
}

double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

Story::Story(const StoryOptions& options)
    : options_(options),
      folder_(options.keep),
      name_(fmt::format("turnstile-demo-{}", ::getpid())),
      schema_(fmt::format("turnstile_demo_{}", ::getpid())),
      ledger_(options.postgres),
      orders_(make_orders(options.messages)),
      found_{.published = static_cast<std::int64_t>(orders_.size()), .distinct = distinct_ids(orders_)},
      handler_time_(handler_time(found_.distinct)),
      board_(Board::create(folder_.file("board"), options.messages)),
      control_board_(Board::create(folder_.file("plain-board"), options.messages)),
      processes_(folder_.path(), "consumer"),
      control_(folder_.path(), "plain-consumer") {}

Story::~Story() {
  processes_.kill_all();  // they hold locks in the schema
  control_.kill_all();
  if (options_.keep) return;
  remove_topics();
  try {
    ledger_.drop_schema(schema_);
  } catch (const std::exception& error) {
    screen_.say(fmt::format("The schema {} could not be dropped: {}", schema_, error.what()));
  }
}

void Story::remove_topics() {
  try {
    for (const std::string& topic : topics_) turnstile::kafka::delete_topic(kafka_, topic);
  } catch (const std::exception& error) {
    screen_.say(fmt::format("The topics {}* could not be deleted: {}", name_, error.what()));
  }
}

int Story::tell() {
  prepare();
  run_control();
  show_first_consumers();
  publish_first();
  kill_one();
  replace_it();
  lower_the_limit();
  finish();
  return judge();
}

void Story::prepare() {
  screen_.title("1. A broker and a database");
  if (options_.kafka.empty()) {
    mock_ = std::make_unique<turnstile::kafka::MockBroker>();
    kafka_ = mock_->settings();
    screen_.say(fmt::format(
        "librdkafka's embedded broker listens on {}. It is enough for a look; `./dev demo --kafka` shows the same on "
        "Apache Kafka.",
        mock_->bootstrap_servers()));
  } else {
    kafka_ = {{"bootstrap.servers", options_.kafka}};
    screen_.say(fmt::format("Apache Kafka listens on {}.", options_.kafka));
  }
  create_topic(name_);
  create_topic(name_ + "-plain");
  // The consumers create these two.
  if (!mock_) topics_.insert(topics_.end(), {name_ + ".tokens", name_ + ".tokens.snapshots"});
  ledger_.create_schema(schema_);
  ledger_.create_table("charge");
  ledger_.create_table("plain_charge");
  turnstile::PostgresSettings settings;
  settings.url = turnstile::Secret(options_.postgres);
  settings.schema = schema_;
  turnstile::postgres::migrate_up(settings, turnstile::postgres::embedded_migration_list());
  shop_ = std::make_unique<Shop>(kafka_.at("bootstrap.servers"), name_, name_);
  shop_->wait_for_topic();
  write_config();
  screen_.say(fmt::format(
      "Kafka gets the topic {} with {} partitions. PostgreSQL gets the schema {} with the inbox and the table charge. "
      "The handler inserts one row into charge for each payment. That table has no unique constraint, so an effect "
      "that happens twice shows as two rows.",
      name_, kPartitions, schema_));
}

void Story::create_topic(const std::string& name) {
  if (mock_) {
    mock_->create_topic(name, kPartitions);
    return;
  }
  turnstile::kafka::NewTopic topic;
  topic.name = name;
  topic.partitions = kPartitions;
  turnstile::kafka::create_topic(kafka_, topic);
  topics_.push_back(name);
}

/// Turnstile's consumers start at the same time, so that their group forms in the meantime.
void Story::run_control() {
  control_shop_ = std::make_unique<Shop>(kafka_.at("bootstrap.servers"), name_ + "-plain", name_ + "-plain");
  control_shop_->wait_for_topic();
  const auto records = std::span(orders_).first(orders_.size() / kControlPart);
  control_ids_ = distinct_ids({records.begin(), records.end()});
  screen_.title("2. For comparison: a plain consumer, without Turnstile");
  screen_.say(fmt::format(
      "Three processes run a plain consumer (examples/demo/plain.cpp: librdkafka and libpq). It commits the offset "
      "after it has written the row. They get the first {} of the records that Turnstile gets below. Among them are "
      "{} different payments; the others are second copies, as a producer that retries or a client that clicks again "
      "makes them. At most {} handlers should run at once. A process cannot count the handlers of the others, so each "
      "one has {} threads. A handler takes {} ms.{}",
      grouped(static_cast<std::int64_t>(records.size())), grouped(control_ids_), kHandlerLimit, kHandlerLimit,
      handler_time_.count(), mock_ ? " (The embedded broker needs some seconds to form a group.)" : ""));
  in_control_ = true;
  for (int consumer = 1; consumer <= kFirstConsumers; ++consumer) {
    start_plain(consumer);
    start(consumer);
  }
  watch("the plain consumers to share the partitions", [&] { return shared_among(control_board_, {1, 2, 3}); });
  publishing_ = std::async(std::launch::async, [this, records] { control_shop_->publish(records); });
  const auto all = static_cast<std::int64_t>(records.size());
  watch(
      "the plain consumers to handle all records",
      [&] { return found_.control_effects.rows >= all && control_board_.running() == 0; }, Needs::nothing,
      time_for(all, kFirstConsumers * kHandlerLimit));
  wait_for_publisher();
  found_.control_most_running = control_board_.take_most_running();
  control_.stop();
  in_control_ = false;
  screen_.line(screen_.bad(fmt::format("paid twice: {} of {}, most at once: {} (the limit is {})",
                                       grouped(found_.control_effects.doubled), grouped(found_.control_effects.ids),
                                       found_.control_most_running, kHandlerLimit)));
  screen_.say(
      "The plain consumer has no bug, and no process was killed. But it does not remember ids, and it cannot limit "
      "handlers across processes.");
}

void Story::write_config() {
  std::ofstream file(folder_.file("turnstile.toml"));
  file << "# Written by turnstile_demo; its consumers read it.\n[kafka]\n";
  kafka_["group.id"] = name_;
  kafka_["session.timeout.ms"] = std::to_string(session().count());
  kafka_["heartbeat.interval.ms"] = "500";
  for (const auto& [key, value] : kafka_) file << fmt::format("\"{}\" = \"{}\"\n", key, value);
  file << fmt::format("[postgres]\nurl = '{}'\nschema = \"{}\"\nlock_timeout = \"2s\"\n",
                      with_search_path(options_.postgres, schema_), schema_);
  // A small window, so that the number of records that were delivered and not handled yet is easy to read.
  file << fmt::format("[consumer]\nworkers = {}\nwindow = 200\n", kHandlerLimit);
  file << fmt::format("[limits]\nlease = \"{}s\"\n", kPermitLease.count());
  file.close();
  if (!file) throw std::runtime_error("cannot write " + folder_.file("turnstile.toml"));
}

void Story::start(int consumer) {
  processes_.start(consumer,
                   {"--consumer", std::to_string(consumer), "--config", folder_.file("turnstile.toml"), "--board",
                    folder_.file("board"), "--topic", name_, "--handler-ms", std::to_string(handler_time_.count())});
}

void Story::start_plain(int consumer) {
  control_.start(consumer, {"--consumer", std::to_string(consumer), "--plain", "--config",
                            folder_.file("turnstile.toml"), "--board", folder_.file("plain-board"), "--topic",
                            name_ + "-plain", "--handler-ms", std::to_string(handler_time_.count())});
}

void Story::show_first_consumers() {
  screen_.title("3. Three consumers with Turnstile");
  screen_.say(fmt::format(
      "They joined a consumer group of their own while the plain consumer ran. The handler is the same, with "
      "transactional() and with limit(\"psp\", {}), which counts over all processes. Here, too, each process has {} "
      "threads.",
      kHandlerLimit, kHandlerLimit));
  screen_.say(
      "The demo measures the limit without Turnstile: a handler adds 1 to a number in shared memory when it begins, "
      "and subtracts 1 when it ends. The highest value is recorded at each change, so no peak is missed.");
  watch("the three consumers to share the partitions", [&] { return shared_among({1, 2, 3}); });
}

void Story::publish_first() {
  const auto all = static_cast<std::int64_t>(orders_.size());
  screen_.title("4. Payments come in, many of them twice");
  screen_.say(fmt::format(
      "In the end there will be {} records with {} different ids. The other {} are second copies, half of them in "
      "another partition than the first. A quarter of the records comes now, and a quarter each in steps 5, 7 and 8.",
      grouped(all), grouped(found_.distinct), grouped(all - found_.distinct)));
  publish_share();
  const std::int64_t enough = std::min(ids_published_ / kKillPart, kMostBeforeKill);
  watch(
      fmt::format("consumer {} to be in the middle of its work", kVictim),
      [&] {
        const Slot& slot = board_.slot(kVictim);
        const auto is_at_work = [&] { return slot.stops.load() >= enough && slot.running() > 1; };
        return is_at_work() && processes_.suspend_if(kVictim, is_at_work);
      },
      Needs::work);
}

void Story::publish_share() {
  wait_for_publisher();
  const std::size_t first = published_;
  published_ = orders_.size() * ++shares_published_ / kShares;
  ids_published_ = distinct_ids({orders_.begin(), orders_.begin() + static_cast<std::ptrdiff_t>(published_)});
  publishing_ = std::async(std::launch::async, [this, first, last = published_] {
    shop_->publish(std::span(orders_).subspan(first, last - first));
  });
}

bool Story::publisher_is_done() const {
  return !publishing_.valid() || publishing_.wait_for(0s) == std::future_status::ready;
}

void Story::wait_for_publisher() {
  if (!publisher_is_done()) watch("Kafka to acknowledge the published records", [&] { return publisher_is_done(); });
  if (publishing_.valid()) publishing_.get();
}

void Story::kill_one() {
  processes_.kill(kVictim);
  const auto killed_at = Clock::now();
  board_.killed(kVictim);
  found_.killed = kVictim;
  found_.running_when_killed = board_.slot(kVictim).running();
  screen_.title(fmt::format("5. kill -9 of consumer {}", kVictim));
  screen_.say(fmt::format(
      "It dies while {} of its handlers run, with open transactions and with offsets that are not committed. "
      "PostgreSQL rolls its transactions back at once. Its permits stay taken, because nobody can know yet that it is "
      "dead. Kafka removes it from the group after {} s without a heartbeat. Then the two others get its partitions, "
      "and Kafka delivers again what it had not committed.{}",
      found_.running_when_killed, session() / 1s,
      mock_ ? " (The embedded broker takes some seconds more to form the group. Meanwhile no consumer gets records.)"
            : ""));
  watch("the others to take over its partitions", [&] { return shared_among({1, 3}); });
  const auto taken_over_at = Clock::now();
  found_.most_running = std::max(found_.most_running, board_.take_most_running());
  publish_share();
  watch(
      "the dead one's permits to be used again", [&] { return board_.most_running() >= kHandlerLimit; }, Needs::work);
  found_.permits_back = seconds_since(killed_at);
  found_.permits_back_after_rebalance = seconds_since(taken_over_at);
  screen_.say(fmt::format(
      "The next quarter of the records has come in, and all {} permits are in use again: {:.1f} s after the kill, "
      "{:.1f} s after the rebalance. The new owners' claims in PostgreSQL fence the dead consumer, so nobody has to "
      "wait for the end of its lease of {} s.",
      kHandlerLimit, found_.permits_back, found_.permits_back_after_rebalance, kPermitLease / 1s));
}

void Story::replace_it() {
  screen_.title(fmt::format("6. Consumer {} joins", kReplacement));
  screen_.say(
      "As an orchestrator would, the demo starts another process. The partitions are divided among three again.");
  start(kReplacement);
  watch("the new consumer to get partitions", [&] { return shared_among({1, 3, kReplacement}); });
}

void Story::lower_the_limit() {
  screen_.title(fmt::format("7. An operator lowers the limit to {} while it runs", kLoweredLimit));
  screen_.say(fmt::format(
      "The third quarter of the records comes in. The demo does what `turnstile limits set psp {}` does: handlers "
      "that run may finish, and no new one begins while {} or more run.",
      kLoweredLimit, kLoweredLimit));
  turnstile::TokenReader tokens(turnstile::kafka::find_token_log(kafka_, name_ + ".tokens", nullptr));
  tokens.start(tokens.end());
  publish_share();
  if (!tokens.set_limit("psp", kLoweredLimit, options_.timeout, kOperator))
    give_up_waiting(fmt::format("the limit could not be lowered within {} s", options_.timeout.count()));
  const auto set_at = Clock::now();
  const auto last_above = [&] { return std::max(set_at, board_.at_lowered().last_above); };
  watch(
      fmt::format("the lower limit to be in effect for {} s", kLoweredFor / 1s),
      [&] {
        if (board_.running() <= kLoweredLimit) limit_ = kLoweredLimit;  // the handlers that ran before have finished
        return Clock::now() - last_above() >= kLoweredFor && board_.at_lowered().most_since >= kLoweredLimit;
      },
      Needs::work);
  found_.lowered_after = std::chrono::duration<double>(last_above() - set_at).count();
  found_.most_when_lowered = board_.at_lowered().most_since;
  screen_.say(
      fmt::format("{:.2f} s after that, the lower limit was in effect in all processes. In the {} s since then, no "
                  "handler began while {} ran.",
                  found_.lowered_after, kLoweredFor / 1s, kLoweredLimit));
  screen_.title(fmt::format("8. The operator takes that back: {} again", kHandlerLimit));
  screen_.say(
      "The demo does what `turnstile limits unset psp` does. The limit of the program is in effect again, and the last "
      "quarter of the records comes in.");
  publish_share();
  if (!tokens.set_limit("psp", std::nullopt, options_.timeout, kOperator))
    give_up_waiting(fmt::format("the lower limit could not be unset within {} s", options_.timeout.count()));
  limit_ = kHandlerLimit;
  watch(
      fmt::format("{} handlers to run at once again", kHandlerLimit),
      [&] { return board_.most_running() >= kHandlerLimit; }, Needs::work);
}

void Story::finish() {
  wait_for_publisher();
  watch(
      "all records to be settled and their offsets committed",
      [&] { return found_.effects.ids >= found_.distinct && shop_->uncommitted() == 0; }, Needs::nothing,
      time_for(found_.distinct - found_.effects.ids, kHandlerLimit));
  processes_.stop();
  found_.effects = ledger_.count("charge");
  screen_.say("Every offset is committed. The consumers got SIGTERM, finished their work and exited with code 0.");
}

void Story::watch(const std::string& what, const std::function<bool()>& over, Needs needs, std::chrono::seconds extra) {
  const auto most = options_.timeout + extra;
  const auto deadline = Clock::now() + most;
  while (true) {
    if (interrupted) throw Interrupted();
    const bool all_published = publisher_is_done();
    if (screen_.due()) draw();
    processes_.check();
    control_.check();
    if (all_published && publishing_.valid()) publishing_.get();
    if (over()) break;
    if (needs == Needs::work && all_published && found_.effects.ids >= ids_published_)
      give_up(fmt::format("no work is left while the demo waits for {}: all published records are handled", what),
              fmt::format("This machine is too busy for so few records. Try again, or with --messages {}.",
                          std::min(kMostMessages, 4 * std::max(options_.messages, kMessagesAtFullSpeed))));
    if (Clock::now() > deadline) give_up_waiting(fmt::format("gave up after waiting {} s for {}", most.count(), what));
    std::this_thread::sleep_for(20ms);
  }
  draw();
  screen_.leave_view();
}

std::chrono::seconds Story::time_for(std::int64_t effects, int at_once) const {
  return std::chrono::ceil<std::chrono::seconds>(3 * effects * handler_time_ / at_once);
}

void Story::give_up(const std::string& problem, const std::string& advice) {
  folder_.keep();
  throw std::runtime_error(fmt::format(
      "{}.\n{}\nThe consumers' logs are in {}.\n{} If that does not help, please report this output with the logs.",
      problem, seen(), folder_.path(), advice));
}

void Story::give_up_waiting(const std::string& problem) {
  give_up(problem, fmt::format("A busy machine may need more time: try again with --timeout {}.",
                               std::min<std::int64_t>(kMostTimeout, 3 * options_.timeout.count())));
}

std::string Story::seen() const {
  const Board& board = in_control_ ? control_board_ : board_;
  const Processes& processes = in_control_ ? control_ : processes_;
  const Ledger::Count& effects = in_control_ ? found_.control_effects : found_.effects;
  std::string text = "Seen last:";
  for (int consumer = 1; consumer <= kMostConsumers; ++consumer) {
    if (processes.pid(consumer) == 0) continue;
    const Slot& slot = board.slot(consumer);
    text += fmt::format("\n  {} {} (process {}): partitions [{}], {} handlers running, {} records delivered",
                        in_control_ ? "plain consumer" : "consumer", consumer, processes.pid(consumer),
                        fmt::join(numbers_in(slot.assigned), " "), slot.running(), grouped(slot.delivered));
  }
  return text + fmt::format("\n  PostgreSQL: {} rows for {} ids, of {} published{}", grouped(effects.rows),
                            grouped(effects.ids), grouped(in_control_ ? control_ids_ : ids_published_),
                            publisher_is_done() ? "" : " (Kafka has not acknowledged all of them yet)");
}

void Story::draw() {
  Ledger::Count& effects = in_control_ ? found_.control_effects : found_.effects;
  effects = ledger_.count(in_control_ ? "plain_charge" : "charge");
  const double seconds = seconds_since(began_);
  const View view = in_control_ ? control_view(control_board_, control_, effects, seconds)
                                : consumer_view(board_, processes_, found_, limit_, seconds);
  screen_.show(view.lines, view.brief);
}

bool Story::shared_among(const Board& board, const std::vector<int>& consumers) {
  std::uint32_t all = 0;
  int owned = 0;
  for (const int consumer : consumers) {
    const std::uint32_t mine = board.slot(consumer).assigned;
    if (mine == 0) return false;
    all |= mine;
    owned += std::popcount(mine);
  }
  return owned == kPartitions && std::popcount(all) == kPartitions;
}

int Story::judge() {
  found_.most_running = std::max(found_.most_running, board_.take_most_running());
  screen_.title("9. The count");
  const bool all_held = demo::judge(found_, board_, screen_);
  if (all_held) {
    screen_.say(fmt::format("Every check passed, in {:.0f} s.", seconds_since(began_)));
  } else {
    folder_.keep();
    screen_.say(fmt::format(
        "A check failed: see WRONG above. That is a bug. Please report it with this output and the consumers' logs in "
        "{}.",
        folder_.path()));
  }
  if (options_.keep) say_what_is_kept();
  else say_how_to_look();
  return all_held ? 0 : 1;
}

void Story::say_what_is_kept() {
  screen_.title("Kept, to look at");
  screen_.say(fmt::format(
      "In PostgreSQL the schema {} with the tables charge (the effects), plain_charge (those of the plain consumer), "
      "inbox, dead and others. {} The consumers' configuration and logs are in {}; remove that folder when you are "
      "done. In psql, and with the command line tool:",
      schema_,
      mock_ ? "The embedded broker ends with the demo; with --kafka its topics are kept, too."
            : fmt::format("In Kafka the topics {}, {}-plain and {}.tokens.", name_, name_, name_),
      folder_.path()));
  for (const char* table : {"charge", "plain_charge"})
    screen_.line(fmt::format("SELECT count(*), count(DISTINCT id) FROM {}.{};", schema_, table));
  const std::string tool = fmt::format("{} --config {}", turnstile_tool(), folder_.file("turnstile.toml"));
  screen_.line(tool + " inbox inspect order-000001");
  if (!mock_) screen_.line(tool + " limits list");
  screen_.say(mock_
                  ? "To look at the messages and the dead letters in a browser, start the dashboard, and open "
                    "http://127.0.0.1:8080/. It reports that the embedded broker has ended. With --kafka it also shows "
                    "the permits over time:"
                  : "To look at the run in a browser, start the dashboard, and open http://127.0.0.1:8080/. Choose the "
                    "window \"all of the log\", and move the slider to the kill:");
  screen_.line(tool + " dashboard");
}

void Story::say_how_to_look() {
  screen_.say(
      "To look at a run in a browser: ./dev demo --kafka --keep. It ends with the command of the dashboard, which shows "
      "the permits of each process over time, messages and dead letters. --kafka needs Java; without it, the dashboard "
      "shows messages and dead letters only.");
}

}  // namespace

int tell(const StoryOptions& options) {
  end_on_signals();
  return Story(options).tell();
}

}  // namespace demo
