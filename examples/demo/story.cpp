#include "story.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

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
  void write_config();
  void start(int consumer);
  void start_first_consumers();
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
  [[nodiscard]] std::string row(int consumer) const;
  /// Every partition has exactly one owner among these consumers, and each of them owns some.
  [[nodiscard]] bool shared_among(const std::vector<int>& consumers) const;
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
  std::unique_ptr<Shop> shop_;
  std::future<void> publishing_;
  Processes processes_;  // after the board and the folder, so that it goes first
  Clock::time_point began_ = Clock::now();
  Ledger::Count effects_;
  std::int64_t running_when_killed_ = 0;
  double permits_back_ = 0, permits_back_after_rebalance_ = 0;  ///< seconds
  double lowered_after_ = 0;                                    ///< seconds
  int most_running_ = 0, most_when_lowered_ = 0;
  bool all_held_ = true;
};

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
      processes_(folder_.path()) {}

Story::~Story() {
  processes_.kill_all();  // they hold locks in the schema
  if (options_.keep) return;
  try {
    ledger_.drop_schema(schema_);
  } catch (const std::exception& error) {
    screen_.say(error.what());
  }
}

int Story::tell() {
  prepare();
  start_first_consumers();
  publish_first();
  kill_one();
  replace_it();
  lower_the_limit();
  finish();
  return judge();
}

void Story::prepare() {
  screen_.title("1. A broker, and two tables");
  if (options_.kafka.empty()) {
    mock_ = std::make_unique<turnstile::kafka::MockBroker>();
    mock_->create_topic(name_, partitions);
    kafka_ = mock_->settings();
    screen_.say(fmt::format(
        "librdkafka's embedded broker listens on {}, with a topic of {} partitions. (--kafka takes a real one.)",
        mock_->bootstrap_servers(), partitions));
  } else {
    kafka_ = {{"bootstrap.servers", options_.kafka}};
    turnstile::kafka::NewTopic topic;
    topic.name = name_;
    topic.partitions = partitions;
    turnstile::kafka::create_topic(kafka_, topic);
    screen_.say(fmt::format("Kafka on {} gets the topic {} with {} partitions.", options_.kafka, name_, partitions));
  }
  ledger_.create_schema(schema_);
  ledger_.create_table();
  turnstile::PostgresSettings settings;
  settings.url = turnstile::Secret(options_.postgres);
  settings.schema = schema_;
  turnstile::postgres::migrate_up(settings, turnstile::postgres::embedded_migration_list());
  shop_ = std::make_unique<Shop>(kafka_.at("bootstrap.servers"), name_, name_);
  shop_->wait_for_topic();
  write_config();
  screen_.say(fmt::format(
      "PostgreSQL gets the schema {} with the inbox, and the table charge, into which the handler writes. That table has "
      "no unique constraint: whatever takes effect twice will show.",
      schema_));
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

void Story::start_first_consumers() {
  screen_.title("2. Three consumers");
  screen_.say(fmt::format(
      "Three processes join one consumer group and share the partitions. Together they run at most {} handlers at once: "
      "limit(\"psp\", {}). A handler takes {} ms and writes one row. The group needs about {} s to form.",
      handler_limit, handler_limit, handler_time.count(), session_timeout / 1s));
  for (int consumer = 1; consumer <= first_consumers; ++consumer) start(consumer);
  watch("the three consumers to share the partitions", 60s, [&] { return shared_among({1, 2, 3}); });
}

void Story::publish_first() {
  const auto published = static_cast<std::int64_t>(orders_.size());
  screen_.title("3. Orders come in, many of them twice");
  screen_.say(fmt::format(
      "In the end there will be {} records with {} different ids: {} are second copies, as a producer that retries or a "
      "client that clicks again makes them, half of them in another partition than the first. Two thirds come now.",
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
  running_when_killed_ = board_.slot(victim).running();
  screen_.title(fmt::format("4. kill -9 of consumer {}", victim));
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
  screen_.title(fmt::format("6. The limit is lowered to {} while it runs", lowered_limit));
  screen_.say("As `turnstile limits set psp` does. What runs is let finish; then the new limit holds everywhere.");
  most_running_ = std::max(most_running_, board_.take_most_running());
  const auto tokens = turnstile::kafka::open_limiters(kafka_, {.name = name_ + ".tokens"}, {.client = "the demo"},
                                                      turnstile::make_logger({.level = "warn"}));
  if (!tokens->set_limit("psp", lowered_limit, 20s)) throw std::runtime_error("the limit could not be set within 20 s");
  const auto set_at = Clock::now();
  watch("the lower limit to hold", 20s, [&] { return board_.running() <= lowered_limit; });
  lowered_after_ = seconds_since(set_at);
  (void)board_.take_most_running();
  watch("the orders to go on under it", 20s, [&] { return seconds_since(set_at) > 3 + lowered_after_; });
  most_when_lowered_ = board_.take_most_running();
  if (!tokens->set_limit("psp", std::nullopt, 20s))
    throw std::runtime_error("the limit could not be unset within 20 s");
}

void Story::replace_it() {
  screen_.title(fmt::format("5. Consumer {} joins", replacement));
  screen_.say(
      "As an orchestrator would, the demo starts another process in its place. The partitions are shared out once more, and "
      "then the last third of the orders comes in.");
  start(replacement);
  watch("a consumer in the dead one's place to get partitions", 60s, [&] { return shared_among({1, 3, replacement}); });
  begin_to_publish(orders_.size() * 2 / 3, orders_.size());
}

void Story::finish() {
  look_at_publisher(60s);
  watch("all records to be settled and their offsets committed", 180s,
        [&] { return effects_.ids >= distinct_ && shop_->uncommitted() == 0; });
  processes_.stop();
  effects_ = ledger_.count();
  screen_.say("Every offset is committed. The consumers were sent SIGTERM and have ended in good order.");
}

void Story::watch(const std::string& what, std::chrono::seconds most, const std::function<bool()>& over) {
  const auto deadline = Clock::now() + most;
  while (true) {
    if (screen_.due()) {
      effects_ = ledger_.count();
      draw();
    }
    processes_.check();
    look_at_publisher(0s);
    if (over()) break;
    if (Clock::now() > deadline) {
      throw std::runtime_error(fmt::format("waited {} s for {}, in vain; run again with --keep and look at {}",
                                           most.count(), what, processes_.log(1)));
    }
    std::this_thread::sleep_for(20ms);
  }
  effects_ = ledger_.count();
  draw();
  screen_.leave_view();
}

void Story::draw() {
  std::vector<std::string> view{
      "consumer   process   partitions    handlers running     delivered   took effect   duplicates"};
  std::string brief = fmt::format("{:5.1f} s", std::chrono::duration<double>(Clock::now() - began_).count());
  for (int consumer = 1; consumer <= most_consumers; ++consumer) {
    view.push_back(row(consumer));
    const Slot& slot = board_.slot(consumer);
    if (processes_.pid(consumer) != 0)
      brief += fmt::format(" | #{} runs {}, took {}", consumer, slot.running(), slot.done.load());
    else if (slot.starts > 0) brief += fmt::format(" | #{} killed", consumer);
  }
  view.push_back(fmt::format("handlers over all      [{}]  {} of at most {}", bar(board_.running(), handler_limit, 30),
                             board_.running(), handler_limit));
  view.push_back(fmt::format("effects in PostgreSQL  [{}]  {} of {} ids, {} of them twice",
                             bar(effects_.ids, distinct_, 30), grouped(effects_.ids), grouped(distinct_),
                             grouped(effects_.doubled)));
  brief += fmt::format(" | effects {} of {}", grouped(effects_.ids), grouped(distinct_));
  screen_.show(view, brief);
}

std::string Story::row(int consumer) const {
  const Slot& slot = board_.slot(consumer);
  const pid_t pid = processes_.pid(consumer);
  if (pid == 0 && slot.starts == 0) return fmt::format("{:<8}   {:<7}", consumer, "-");
  std::vector<int> owned;
  for (int p = 0; p < partitions && pid != 0; ++p) {
    if ((slot.assigned >> static_cast<unsigned>(p) & 1U) != 0) owned.push_back(p);
  }
  const auto running = slot.running();
  const std::string process = pid != 0 ? std::to_string(pid) : "killed";
  return fmt::format("{:<8}   {:<7}   {:<11}   {} {:>2}       {:>9}   {:>11}   {:>10}", consumer, process,
                     fmt::format("{}", fmt::join(owned, " ")), bar(running, handler_limit, handler_limit), running,
                     grouped(slot.delivered), grouped(slot.done), grouped(slot.duplicates));
}

bool Story::shared_among(const std::vector<int>& consumers) const {
  std::uint32_t all = 0;
  int owned = 0;
  for (const int consumer : consumers) {
    const std::uint32_t mine = board_.slot(consumer).assigned;
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
  const auto slots = board_.slots();
  std::int64_t delivered = 0;
  std::int64_t refused = 0;
  std::int64_t failed = 0;
  most_running_ = std::max(most_running_, board_.take_most_running());
  for (const Slot& slot : slots) {
    delivered += slot.delivered;
    refused += slot.duplicates;
    failed += slot.failed;
  }

  screen_.title("7. The count");
  verdict("records published", grouped(published), true, "all acknowledged by Kafka");
  verdict("different ids among them", grouped(distinct_), true, "each may take effect once");
  verdict("delivered by Kafka", grouped(delivered), delivered >= published,
          fmt::format("{} of them again: not committed at a rebalance or the kill", grouped(delivered - published)));
  verdict("effects in PostgreSQL", grouped(effects_.rows), effects_.rows == distinct_, "one for each id");
  verdict("ids that took effect twice", grouped(effects_.doubled), effects_.doubled == 0, "none");
  verdict("duplicates refused", grouped(refused), refused >= published - distinct_ && refused <= delivered - distinct_,
          fmt::format("the {} second copies, and what came again", grouped(published - distinct_)));
  verdict("most handlers at once, over all", grouped(most_running_), most_running_ == handler_limit,
          fmt::format("the limit of {} was reached and never passed", handler_limit));
  verdict("the dead one's permits back after", fmt::format("{:.1f} s", permits_back_),
          permits_back_after_rebalance_ < 2,
          fmt::format("{:.1f} s after the rebalance; its lease would have lasted {} s", permits_back_after_rebalance_,
                      permit_lease / 1s));
  verdict(fmt::format("most at once with the limit at {}", lowered_limit), grouped(most_when_lowered_),
          most_when_lowered_ == lowered_limit, fmt::format("{:.2f} s after it was lowered", lowered_after_));
  verdict("running in the process killed", grouped(running_when_killed_), running_when_killed_ > 0,
          "it died in the middle of its work");
  verdict("redelivered after the kill", grouped(board_.redelivered()), board_.redelivered() > 0,
          "had been with the dead consumer, and came to another one");
  verdict("handlers that failed", grouped(failed), failed == 0, "none");
  const auto took = std::chrono::duration<double>(Clock::now() - began_).count();
  if (all_held_) screen_.say(fmt::format("All of it held, in {:.0f} s.", took));
  else screen_.say("Something of it did not hold. That is a bug: please report it with this output.");
  if (options_.keep) {
    screen_.say(fmt::format("Kept: the schema {}, and the consumers' logs in {}.", schema_, folder_.path()));
  }
  return all_held_ ? 0 : 1;
}

}  // namespace

int tell(const StoryOptions& options) { return Story(options).tell(); }

}  // namespace demo
