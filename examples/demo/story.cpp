#include "story.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdlib>
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
#include <turnstile/log.hpp>
#include <turnstile/postgres/migrations.hpp>

#include "board.hpp"
#include "ledger.hpp"
#include "processes.hpp"
#include "screen.hpp"
#include "settings.hpp"
#include "shop.hpp"

namespace demo {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr int first_consumers = 3;
constexpr int victim = 2;
constexpr int replacement = 4;

/// A folder that goes away with the demo, unless it is kept.
class Folder {
 public:
  explicit Folder(bool keep) : keep_(keep) {
    std::string pattern = (std::filesystem::temp_directory_path() / "turnstile-demo.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder can be made in " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  bool keep_;
};

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
  void write_config();
  /// The first records on a consumer without Turnstile.
  void run_control();
  void start(int consumer);
  void start_plain(int consumer);
  void show_first_consumers();
  void publish_first();
  /// Those from `first` up to `last`, while the story goes on. What goes wrong is thrown by the next watch().
  void begin_to_publish(std::size_t first, std::size_t last);
  /// Throws what the publisher threw, once it has ended; waits for it at most that long.
  void look_at_publisher(std::chrono::seconds most);
  void kill_one();
  void replace_it();
  void lower_the_limit();
  void finish();
  int judge();

  /// Shows the view until `over`. Throws with `what` when that takes longer than `most`, or when a consumer dies.
  void watch(const std::string& what, std::chrono::seconds most, const std::function<bool()>& over);
  void draw();
  void draw_control();
  [[nodiscard]] std::string row(int consumer) const;
  /// Every partition has exactly one owner among these consumers, and each of them owns some.
  [[nodiscard]] static bool shared_among(const Board& board, const std::vector<int>& consumers);
  [[nodiscard]] bool shared_among(const std::vector<int>& consumers) const { return shared_among(board_, consumers); }
  /// What became of every record that Kafka has handed to a consumer.
  struct Fates {
    std::int64_t delivered = 0;
    std::int64_t in_effect = 0;  ///< rows in PostgreSQL
    std::int64_t refused = 0;    ///< duplicates, by the framework's account
    std::int64_t died = 0;       ///< with the process that was killed
    std::int64_t handed_on = 0;  ///< by the consumers' own account
    [[nodiscard]] std::int64_t rest() const { return delivered - in_effect - refused - died - handed_on; }
  };
  [[nodiscard]] Fates fates() const;
  void judge_fates(std::int64_t published);
  void say_what_is_kept();
  /// One line of the last table: the figure, what it is, and whether it is as it must be.
  void verdict(const std::string& what, const std::string& figure, bool held, const std::string& remark);

  StoryOptions options_;
  Screen screen_;
  Folder folder_;
  std::string name_;  ///< of the topic and the group
  std::string schema_;
  std::unique_ptr<turnstile::kafka::MockBroker> mock_;
  turnstile::kafka::Settings kafka_;
  Ledger ledger_;
  std::vector<Order> orders_;
  std::int64_t distinct_ = 0;
  Board board_;
  Board control_board_;
  std::unique_ptr<Shop> shop_, control_shop_;
  std::future<void> publishing_;
  Processes processes_;  // after the board and the folder, so that it goes first
  Processes control_;
  bool in_control_ = false;  ///< the view shows the plain consumer
  Clock::time_point began_ = Clock::now();
  Ledger::Count effects_, control_effects_;
  std::size_t control_records_ = 0;
  int control_most_running_ = 0;
  bool killed_ = false;
  std::int64_t running_when_killed_ = 0;
  double permits_back_ = 0, permits_back_after_rebalance_ = 0;  ///< seconds
  double lowered_after_ = 0;                                    ///< seconds
  int most_running_ = 0, most_when_lowered_ = 0;
  bool all_held_ = true;
};

std::vector<int> numbers_in(std::uint32_t bits) {
  std::vector<int> numbers;
  for (int p = 0; p < partitions; ++p) {
    if ((bits >> static_cast<unsigned>(p) & 1U) != 0) numbers.push_back(p);
  }
  return numbers;
}

/// Beside this program where it was built, else as the shell finds it.
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
      distinct_(distinct_ids(orders_)),
      board_(Board::create(folder_.file("board"), options.messages)),
      control_board_(Board::create(folder_.file("plain-board"), options.messages)),
      processes_(folder_.path(), "consumer"),
      control_(folder_.path(), "plain-consumer") {}

Story::~Story() {
  processes_.kill_all();  // they hold locks in the schema
  control_.kill_all();
  if (options_.keep) return;
  try {
    ledger_.drop_schema(schema_);
  } catch (const std::exception& error) {
    screen_.say(error.what());
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
        "librdkafka's embedded broker listens on {}: good enough to look at. A real Apache Kafka is the better proof: "
        "./dev demo --kafka.",
        mock_->bootstrap_servers()));
  } else {
    kafka_ = {{"bootstrap.servers", options_.kafka}};
    screen_.say(fmt::format("Apache Kafka listens on {}.", options_.kafka));
  }
  create_topic(name_);
  create_topic(name_ + "-plain");
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
      "Kafka gets the topic {} with {} partitions. PostgreSQL gets the schema {} with the inbox, and the table charge, into "
      "which the handler writes one row for each payment. That table has no unique constraint: whatever takes effect twice "
      "shows as two rows.",
      name_, partitions, schema_));
}

void Story::create_topic(const std::string& name) {
  if (mock_) {
    mock_->create_topic(name, partitions);
    return;
  }
  turnstile::kafka::NewTopic topic;
  topic.name = name;
  topic.partitions = partitions;
  turnstile::kafka::create_topic(kafka_, topic);
}

/// Turnstile's consumers start beside it, so that their group forms meanwhile.
void Story::run_control() {
  control_shop_ = std::make_unique<Shop>(kafka_.at("bootstrap.servers"), name_ + "-plain", name_ + "-plain");
  control_shop_->wait_for_topic();
  control_records_ = orders_.size() / control_part;
  const auto records = std::span(orders_).first(control_records_);
  const auto distinct = distinct_ids({records.begin(), records.end()});
  screen_.title("2. For comparison: a plain consumer, without Turnstile");
  screen_.say(fmt::format(
      "Three processes of a plain consumer (examples/demo/plain.cpp: librdkafka and libpq; the offset is committed after "
      "the row is written) get the first {} of the records that Turnstile gets below. Among them are {} different "
      "payments; the others are second copies, as a producer that retries or a client that clicks again makes them. At "
      "most {} handlers shall run at once, so each process has {} threads: it cannot count those of the others. A handler "
      "takes {} ms.{}",
      grouped(static_cast<std::int64_t>(records.size())), grouped(distinct), handler_limit, handler_limit,
      handler_time.count(), mock_ ? " (With the embedded broker a group needs some 6 s to form.)" : ""));
  in_control_ = true;
  for (int consumer = 1; consumer <= first_consumers; ++consumer) {
    start_plain(consumer);
    start(consumer);
  }
  watch("the plain consumers to share the partitions", 60s, [&] { return shared_among(control_board_, {1, 2, 3}); });
  publishing_ = std::async(std::launch::async, [this, records] { control_shop_->publish(records); });
  watch("the plain consumers to handle all records", 60s, [&] {
    return control_effects_.rows >= static_cast<std::int64_t>(records.size()) && control_board_.running() == 0;
  });
  look_at_publisher(60s);
  control_most_running_ = control_board_.take_most_running();
  control_.stop();
  in_control_ = false;
  screen_.line(screen_.bad(fmt::format("paid twice: {} of {}, most at once: {} (the limit is {})",
                                       grouped(control_effects_.doubled), grouped(control_effects_.ids),
                                       control_most_running_, handler_limit)));
  screen_.say(
      "Nothing in this consumer is wrong, and no process was killed. It has no memory of ids, and nobody counts over "
      "processes.");
}

void Story::write_config() {
  std::ofstream file(folder_.file("turnstile.toml"));
  file << "# Written by turnstile_demo; its consumers read it.\n[kafka]\n";
  kafka_["group.id"] = name_;
  kafka_["session.timeout.ms"] = std::to_string(session_timeout.count());
  kafka_["heartbeat.interval.ms"] = "500";
  for (const auto& [key, value] : kafka_) file << fmt::format("\"{}\" = \"{}\"\n", key, value);
  file << fmt::format("[postgres]\nurl = '{}'\nschema = \"{}\"\n", with_search_path(options_.postgres, schema_),
                      schema_);
  // A small window, so that what is delivered and not yet handled is a number that one can look at.
  file << fmt::format("[consumer]\nworkers = {}\nwindow = 200\n", handler_limit);
  file << fmt::format("[limits]\nlease = \"{}s\"\n", permit_lease.count());
  file.close();
  if (!file) throw std::runtime_error("cannot write " + folder_.file("turnstile.toml"));
}

void Story::start(int consumer) {
  processes_.start(consumer, {"--consumer", std::to_string(consumer), "--config", folder_.file("turnstile.toml"),
                              "--board", folder_.file("board"), "--topic", name_});
}

void Story::start_plain(int consumer) {
  control_.start(consumer,
                 {"--consumer", std::to_string(consumer), "--plain", "--config", folder_.file("turnstile.toml"),
                  "--board", folder_.file("plain-board"), "--topic", name_ + "-plain"});
}

void Story::show_first_consumers() {
  screen_.title("3. Three consumers with Turnstile");
  screen_.say(fmt::format(
      "They have joined a consumer group of their own meanwhile. The handler is the same, with transactional(), and with "
      "limit(\"psp\", {}) over all processes together. Each process has {} threads here, too.",
      handler_limit, handler_limit));
  screen_.say(
      "How the demo measures the limit: a handler first adds 1 to a number in memory that all processes share, and takes it off "
      "at its end. The highest value is kept at each step, not looked at from time to time. Turnstile has no part in this.");
  watch("the three consumers to share the partitions", 60s, [&] { return shared_among({1, 2, 3}); });
}

void Story::publish_first() {
  const auto published = static_cast<std::int64_t>(orders_.size());
  screen_.title("4. Payments come in, many of them twice");
  screen_.say(fmt::format(
      "In the end there will be {} records with {} different ids; {} are second copies, half of them in another partition "
      "than the first. Two thirds come now.",
      grouped(published), grouped(distinct_), grouped(published - distinct_)));
  begin_to_publish(0, orders_.size() * 2 / 3);
  watch("the consumers to work", 60s,
        [&] { return board_.slot(victim).stops.load() >= distinct_ / 12 && board_.slot(victim).running() > 1; });
}

void Story::begin_to_publish(std::size_t first, std::size_t last) {
  publishing_ = std::async(std::launch::async,
                           [this, first, last] { shop_->publish(std::span(orders_).subspan(first, last - first)); });
}

void Story::look_at_publisher(std::chrono::seconds most) {
  if (publishing_.valid() && publishing_.wait_for(most) == std::future_status::ready) publishing_.get();
}

void Story::kill_one() {
  processes_.kill(victim);
  const auto killed_at = Clock::now();
  board_.killed(victim);
  killed_ = true;
  running_when_killed_ = board_.slot(victim).running();
  screen_.title(fmt::format("5. kill -9 of consumer {}", victim));
  screen_.say(fmt::format(
      "It dies while {} of its handlers run, with transactions open and offsets not yet committed. PostgreSQL rolls its "
      "transactions back at once, but its permits stay out: nobody can know yet that it is dead. Kafka takes notice after {} s without a heartbeat; then its partitions go to the two others, "
      "and what it had not committed is delivered again.{}",
      running_when_killed_, session_timeout / 1s,
      mock_ ? " (The embedded broker takes some seconds more to form the group anew, in which nobody works.)" : ""));
  look_at_publisher(60s);
  watch("the others to take over", 60s, [&] { return shared_among({1, 3}); });
  const auto taken_over_at = Clock::now();
  watch("the dead one's permits to be used again", 60s, [&] { return board_.running() == handler_limit; });
  permits_back_ = seconds_since(killed_at);
  permits_back_after_rebalance_ = seconds_since(taken_over_at);
  screen_.say(fmt::format(
      "All {} permits are in use again, {:.1f} s after the kill: the new owners' claims in PostgreSQL fence the "
      "dead one, so that its lease of {} s need not be waited for.",
      handler_limit, permits_back_, permit_lease / 1s));
}

void Story::lower_the_limit() {
  screen_.title(fmt::format("7. An operator lowers the limit to {} while it runs", lowered_limit));
  screen_.say(
      fmt::format("As `turnstile limits set psp {}` does. Handlers that run may finish; no new one starts above {}.",
                  lowered_limit, lowered_limit));
  most_running_ = std::max(most_running_, board_.take_most_running());
  const auto tokens = turnstile::kafka::open_limiters(kafka_, {.name = name_ + ".tokens"}, {.client = "the demo"},
                                                      turnstile::make_logger({.level = "warn"}));
  if (!tokens->set_limit("psp", lowered_limit, 20s)) throw std::runtime_error("the limit could not be set within 20 s");
  const auto set_at = Clock::now();
  watch("the lower limit to be in effect", 20s, [&] { return board_.running() <= lowered_limit; });
  lowered_after_ = seconds_since(set_at);
  (void)board_.take_most_running();
  watch("the orders to go on under it", 20s, [&] { return seconds_since(set_at) > 3 + lowered_after_; });
  most_when_lowered_ = board_.take_most_running();
  screen_.title(fmt::format("8. The operator takes that back: {} again", handler_limit));
  screen_.say(
      "As `turnstile limits unset psp` does. The limit of the program is in effect again, and the rest of the records comes in.");
  if (!tokens->set_limit("psp", std::nullopt, 20s))
    throw std::runtime_error("the limit could not be unset within 20 s");
  watch("the old limit to be used again", 20s,
        [&] { return board_.running() == handler_limit || effects_.ids >= distinct_; });
}

void Story::replace_it() {
  screen_.title(fmt::format("6. Consumer {} joins", replacement));
  screen_.say(
      "As an orchestrator would, the demo starts another process in its place. The partitions are shared out once more, and "
      "then the last third of the records comes in.");
  start(replacement);
  watch("a consumer in the dead one's place to get partitions", 60s, [&] { return shared_among({1, 3, replacement}); });
  begin_to_publish(orders_.size() * 2 / 3, orders_.size());
}

void Story::finish() {
  look_at_publisher(60s);
  watch("all records to be settled and their offsets committed", 180s,
        [&] { return effects_.ids >= distinct_ && shop_->uncommitted() == 0; });
  processes_.stop();
  effects_ = ledger_.count("charge");
  screen_.say("Every offset is committed. The consumers were sent SIGTERM and have ended in good order.");
}

void Story::watch(const std::string& what, std::chrono::seconds most, const std::function<bool()>& over) {
  const auto deadline = Clock::now() + most;
  while (true) {
    if (screen_.due()) draw();
    processes_.check();
    control_.check();
    look_at_publisher(0s);
    if (over()) break;
    if (Clock::now() > deadline) {
      throw std::runtime_error(fmt::format("waited {} s for {}, in vain; run again with --keep and look at {}",
                                           most.count(), what, processes_.log(1)));
    }
    std::this_thread::sleep_for(20ms);
  }
  draw();
  screen_.leave_view();
}

void Story::draw_control() {
  control_effects_ = ledger_.count("plain_charge");
  std::vector<std::string> view{"plain consumer   process   partitions    handlers running     delivered    rows made"};
  for (int consumer = 1; consumer <= first_consumers; ++consumer) {
    const Slot& slot = control_board_.slot(consumer);
    view.push_back(fmt::format("{:<14}   {:<7}   {:<11}   {} {:>2}       {:>9}   {:>10}", consumer,
                               control_.pid(consumer), fmt::format("{}", fmt::join(numbers_in(slot.assigned), " ")),
                               bar(slot.running(), handler_limit, handler_limit), slot.running(),
                               grouped(slot.delivered), grouped(slot.done)));
  }
  const int running = control_board_.running();
  view.push_back(fmt::format("handlers over all      [{}]  {}, and shall be at most {}",
                             bar(running, first_consumers * handler_limit, 36), running, handler_limit));
  view.push_back(fmt::format("rows in PostgreSQL      {} for {} ids, {} of them twice", grouped(control_effects_.rows),
                             grouped(control_effects_.ids), grouped(control_effects_.doubled)));
  screen_.show(view, fmt::format("{:5.1f} s | plain: {} handlers at once | {} rows for {} ids, {} of them twice",
                                 seconds_since(began_), running, grouped(control_effects_.rows),
                                 grouped(control_effects_.ids), grouped(control_effects_.doubled)));
}

void Story::draw() {
  if (in_control_) return draw_control();
  effects_ = ledger_.count("charge");
  std::vector<std::string> view{
      "consumer   process   partitions    handlers running     delivered   took effect   duplicates"};
  std::string brief = fmt::format("{:5.1f} s", std::chrono::duration<double>(Clock::now() - began_).count());
  for (int consumer = 1; consumer <= most_consumers; ++consumer) {
    view.push_back(row(consumer));
    const Slot& slot = board_.slot(consumer);
    if (processes_.pid(consumer) != 0)
      brief += fmt::format(" | #{} runs {}, took {}", consumer, slot.running(), slot.done.load());
    else if (slot.starts > 0) brief += fmt::format(" | #{} killed, took {}", consumer, slot.done.load());
  }
  view.push_back(fmt::format("handlers over all      [{}]  {} of at most {}", bar(board_.running(), handler_limit, 30),
                             board_.running(), handler_limit));
  view.push_back(fmt::format("effects in PostgreSQL  [{}]  {} of {} ids, {} of them twice",
                             bar(effects_.ids, distinct_, 30), grouped(effects_.ids), grouped(distinct_),
                             grouped(effects_.doubled)));
  const Fates f = fates();
  view.push_back(
      fmt::format("delivered {} = {} in effect + {} duplicates + {} died with the killed + {} handed on + {} in hand",
                  grouped(f.delivered), grouped(f.in_effect), grouped(f.refused), grouped(f.died), grouped(f.handed_on),
                  grouped(std::max<std::int64_t>(0, f.rest()))));
  brief += fmt::format(" | {} of {} at once | effects {} of {}", board_.running(), handler_limit, grouped(effects_.ids),
                       grouped(distinct_));
  screen_.show(view, brief);
}

std::string Story::row(int consumer) const {
  const Slot& slot = board_.slot(consumer);
  const pid_t pid = processes_.pid(consumer);
  if (pid == 0 && slot.starts == 0) return fmt::format("{:<8}   {:<7}", consumer, "-");
  const auto running = slot.running();
  const std::string owned = pid != 0 ? fmt::format("{}", fmt::join(numbers_in(slot.assigned), " ")) : "-";
  // What a killed process has begun stays begun on its slot; it runs no more.
  const std::string handlers = pid != 0 ? fmt::format("{} {:>2}", bar(running, handler_limit, handler_limit), running)
                                        : fmt::format("{:>2} died with it", running);
  return fmt::format("{:<8}   {:<7}   {:<11}   {:<15}       {:>9}   {:>11}   {:>10}", consumer,
                     pid != 0 ? std::to_string(pid) : "killed", owned, handlers, grouped(slot.delivered),
                     grouped(slot.done), grouped(slot.duplicates));
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
  return owned == partitions && std::popcount(all) == partitions;
}

void Story::verdict(const std::string& what, const std::string& figure, bool held, const std::string& remark) {
  all_held_ = all_held_ && held;
  screen_.line(
      fmt::format("{:<34} {:>12}   {} {}", what, figure, held ? screen_.good("ok") : screen_.bad("WRONG:"), remark));
}

int Story::judge() {
  const auto published = static_cast<std::int64_t>(orders_.size());
  std::int64_t failed = 0;
  most_running_ = std::max(most_running_, board_.take_most_running());
  for (const Slot& slot : board_.slots()) failed += slot.failed;

  screen_.title("9. The count");
  verdict("records published", grouped(published), true, "all acknowledged by Kafka");
  verdict("different ids among them", grouped(distinct_), true, "each may take effect once");
  judge_fates(published);
  verdict(
      "ids that took effect twice", grouped(effects_.doubled), effects_.doubled == 0,
      fmt::format("none; plain consumer: {} of {}", grouped(control_effects_.doubled), grouped(control_effects_.ids)));
  verdict("most handlers at once, over all", grouped(most_running_), most_running_ == handler_limit,
          fmt::format("the limit of {} was reached and never passed; plain consumer: {}", handler_limit,
                      control_most_running_));
  verdict("the dead one's permits back after", fmt::format("{:.1f} s", permits_back_),
          permits_back_after_rebalance_ < 2,
          fmt::format("{:.1f} s after the rebalance; its lease would have lasted {} s", permits_back_after_rebalance_,
                      permit_lease / 1s));
  verdict(fmt::format("most at once with the limit at {}", lowered_limit), grouped(most_when_lowered_),
          most_when_lowered_ == lowered_limit, fmt::format("{:.2f} s after it was lowered", lowered_after_));
  verdict("running in the process killed", grouped(running_when_killed_), running_when_killed_ > 0,
          "it died in the middle of its work");
  verdict("redelivered after the kill", grouped(board_.redelivered()), board_.redelivered() > 0,
          "handed to the dead one, settled or not, and later to another");
  verdict("handlers that failed", grouped(failed), failed == 0, "none");
  const auto took = std::chrono::duration<double>(Clock::now() - began_).count();
  if (all_held_) screen_.say(fmt::format("All of it held, in {:.0f} s.", took));
  else screen_.say("Something of it did not hold. That is a bug: please report it with this output.");
  if (options_.keep) say_what_is_kept();
  return all_held_ ? 0 : 1;
}

Story::Fates Story::fates() const {
  Fates all;
  for (int consumer = 1; consumer <= most_consumers; ++consumer) {
    const Slot& slot = board_.slot(consumer);
    const auto found = effects_.rows_of.find(consumer);
    const std::int64_t rows = found == effects_.rows_of.end() ? 0 : found->second;
    all.delivered += slot.delivered;
    all.in_effect += rows;
    all.refused += slot.duplicates;
    all.handed_on += slot.handed_on;
    // It can say nothing more, so the rest of what it was handed counts, less what PostgreSQL has from it.
    if (killed_ && consumer == victim) all.died += slot.delivered - rows - slot.duplicates - slot.handed_on;
  }
  return all;
}

void Story::judge_fates(std::int64_t published) {
  const Fates f = fates();
  const std::int64_t again = f.delivered - published;
  verdict("delivered by Kafka", grouped(f.delivered), again >= 0,
          fmt::format("{} of them again, after the kill or a rebalance", grouped(again)));
  verdict("  took effect", grouped(f.in_effect), f.in_effect == distinct_ && effects_.rows == distinct_,
          "rows in PostgreSQL: one for each id");
  verdict("  refused as duplicates", grouped(f.refused), f.refused >= published - distinct_,
          fmt::format("the {} second copies, and {} that came again", grouped(published - distinct_),
                      grouped(f.refused - (published - distinct_))));
  verdict("  died with the killed process", grouped(f.died), f.died > 0,
          "handed to it, no effect: delivered again to others");
  verdict("  handed on to another consumer", grouped(f.handed_on), f.handed_on >= 0,
          "waited in a consumer when their partition was moved");
  verdict("  unexplained", grouped(f.rest()), f.rest() == 0, "each delivery has one fate");
}

void Story::say_what_is_kept() {
  screen_.title("Kept, to look at");
  screen_.say(fmt::format(
      "In PostgreSQL the schema {} with the tables charge (the effects), plain_charge (those of the plain consumer), inbox, dead "
      "and others. {} The consumers' configuration and logs are in {}. In psql, and with the command line tool:",
      schema_,
      mock_ ? "The embedded broker ends with the demo; with --kafka its topics are kept, too."
            : fmt::format("In Kafka the topics {}, {}-plain and {}.tokens.", name_, name_, name_),
      folder_.path()));
  for (const char* table : {"charge", "plain_charge"})
    screen_.line(fmt::format("SELECT count(*), count(DISTINCT id) FROM {}.{};", schema_, table));
  const std::string tool = fmt::format("{} --config {}", turnstile_tool(), folder_.file("turnstile.toml"));
  screen_.line(tool + " inbox inspect order-000001");
  if (!mock_) screen_.line(tool + " limits list");
}

}  // namespace

int tell(const StoryOptions& options) { return Story(options).tell(); }

}  // namespace demo
