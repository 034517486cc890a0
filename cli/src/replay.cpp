// turnstile dlq replay: publishes a dead letter to its original topic. The row is marked in a transaction that commits
// after the broker has acknowledged the record. A record that cannot be marked is therefore not published. After a
// crash before the commit it is published again, and the inbox rejects the second copy.
// If a record's place is its id, the inbox could not reject it. In that case the start of the replay is committed
// first, with a token that the record carries, and its end after the acknowledgement. If the process dies between the
// two, the replay is in doubt. An operator looks for the token in the topic, and decides (--done, --again).

#include "turnstile/replay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <map>
#include <memory>
#include <thread>

#include "command.hpp"
#include "dead_options.hpp"
#include "replay_plan.hpp"
#include "spool.hpp"
#include "text.hpp"
#include "turnstile/dead_reason.hpp"
#include "turnstile/error.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/ports/record_not_stored.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/sender.hpp"

namespace turnstile::cli {

namespace {

/// A flag that an operator decides with. It can name the replay in doubt that the operator has looked for:
/// --again=TOKEN.
struct Decision {
  std::string given;  ///< empty: not given; kPlain: without a token
  static constexpr std::string_view kPlain = "true";

  explicit operator bool() const { return !given.empty(); }
  [[nodiscard]] std::optional<std::string> token() const {
    return given.empty() || given == kPlain ? std::nullopt : std::optional(given);
  }
};

struct Options {
  std::int64_t number = 0;
  bool all = false;
  Decision again;
  Decision done;
  DeadOptions which;
  std::optional<std::int64_t> from;
  std::optional<std::string> rate;
  bool dry_run = false;
};

bool is(const std::string& text, DeadReason reason) { return text == to_text(reason); }

/// This dead letter cannot be published, and the text tells why. Others can.
struct CannotBeSent : Error {
  using Error::Error;
};

/// The broker may have this dead letter or not, and the text tells how to find out.
struct InDoubt : BrokerError {
  using BrokerError::BrokerError;
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

constexpr auto kLookUp = std::chrono::seconds(3);
constexpr std::int64_t kPage = 100;

/// The consumed record, with its key, payload and headers, and with its original place.
OwnedMessage republished(const postgres::DeadRecord& dead, std::int32_t partitions) {
  OwnedMessage message = dead.record;
  // It was replayed before and dead-lettered again, so its first place is another one.
  const Message before(dead.record);
  const auto earlier = before.header(kReplayedFrom);
  if (earlier && !before.header(kFirstOrigin))
    message.headers.push_back({std::string(kFirstOrigin), std::string(*earlier)});
  std::erase_if(message.headers, [](const Header& header) {
    return header.name == kReplayedFrom || header.name == kReplayedFor || header.name == kReplayToken ||
           header.name == kDeaths;
  });
  message.headers.push_back(
      {std::string(kReplayedFrom), to_string(TopicPartitionOffset{dead.summary.from.at, dead.summary.offset})});
  message.headers.push_back({std::string(kReplayedFor), dead.summary.handler});
  // The row has the headers from before this dead letter.
  message.headers.push_back({std::string(kDeaths), std::to_string(deaths_of(before) + 1)});
  const auto was_sent = [](const Header& header) { return header.name == kSentAt; };
  if (message.timestamp != Timestamp{} && std::none_of(message.headers.begin(), message.headers.end(), was_sent))
    message.headers.push_back({std::string(kSentAt), std::to_string(message.timestamp.time_since_epoch().count())});
  // The same partition keeps it beside the other records of its key, for any partitioner of its producer.
  if (message.partition >= partitions) message.partition = -1;
  // The current time: with its old time the broker could delete the record at once.
  message.timestamp = {};
  return message;
}

/// An operator settles or replaces the last replay of a dead letter only, and has looked for its record. Throws Refusal
/// otherwise.
void require_last_replay(const postgres::DeadSummary& dead, const Decision& decided) {
  if (!dead.replay_in_doubt) {
    if (!decided.token()) return;
    throw Refusal(fmt::format(
        "dead letter {}: the replay {} is not in doubt any more; the letter {}", dead.number, *decided.token(),
        dead.replayed_at ? "was replayed " + when(*dead.replayed_at) : "waits, and was not published by that replay"));
  }
  if (decided && decided.token() == dead.replay_token) return;
  throw Refusal(fmt::format("dead letter {}: {}", dead.number, how_to_settle(dead)));
}

class Replayer {
 public:
  Replayer(const Global& global, const Config& config, bool again)
      : json_(global.json), again_(again), config_(config), admin_(open_admin(config)) {
    auto settings = require_kafka(config);
    settings.try_emplace("delivery.timeout.ms", "15000");
    broker_ = kafka::open_broker(settings, nullptr);
  }

  /// Throws BrokerError, StoreUnavailable. Records that were reported as replayed are published.
  Exit one(const Options& options) {
    const auto dead = admin_.load_dead(options.number);
    if (!dead)
      throw Error(Code::not_found, fmt::format("there is no dead letter {}; see: turnstile dlq list", options.number));
    require_last_replay(dead->summary, options.again);
    if (dead->summary.replayed_at && !options.again) {
      throw Refusal(fmt::format("dead letter {} was replayed already, {}; add --again to publish it once more",
                                options.number, when(*dead->summary.replayed_at)));
    }
    if (is_done(dead->summary) && !options.again) {
      throw Refusal(fmt::format(
          "dead letter {} is a duplicate: its message has taken effect; add --again to publish it all the same",
          options.number));
    }
    publish(*dead);
    heed_signal();
    return finish();
  }

  /// Continues if some records cannot be published: names them, and they wait as before. Names also the records that
  /// the broker may have; their replays are then in doubt.
  Exit all(const Options& options, std::optional<std::chrono::nanoseconds> interval) {
    all_ = true;
    auto filter = dead_filter(admin_, options.which);
    filter.most = kPage;
    filter.from = options.from;
    // A running consumer makes new dead letters of replayed records. They wait for the next replay.
    filter.up_to = admin_.newest_dead();
    Pace pace(interval);
    postgres::DeadPage page;
    do {
      page = admin_.dead(filter);
      for (const auto& letter : page.letters) {
        const auto part = replay_part(letter.reason, letter.replay_in_doubt, options.which.reason.has_value());
        if (part == ReplayPart::published) {
          std::this_thread::sleep_until(pace.next(Pace::Clock::now()));
          replay_if_it_waits(letter.number);
        } else {
          ++left_out_[{part, part == ReplayPart::in_doubt ? "" : letter.reason}];
        }
        heed_signal();
      }
      filter.after = page.next;
    } while (page.next);
    say_what_was_left_out();
    return finish();
  }

 private:
  std::int32_t partitions_of(const std::string& topic) {
    if (const auto known = partitions_.find(topic); known != partitions_.end()) return known->second;
    const auto info = broker_->describe(topic, kLookUp);
    if (!info)
      throw CannotBeSent(Code::topic_missing, fmt::format("topic {} does not exist: create it, then replay", topic));
    return partitions_[topic] = info->partitions;
  }

  /// Another operator may have replayed it since the page was read.
  void replay_if_it_waits(std::int64_t number) {
    const auto dead = admin_.load_dead(number);
    if (!dead || dead->summary.replayed_at) return;
    if (dead->summary.replay_in_doubt) ++left_out_[{ReplayPart::in_doubt, ""}];
    else publish_if_possible(*dead);
  }

  void say_what_was_left_out() const {
    if (json_) return;
    if (replayed_.size() == 0 && left_out_.empty() && unsendable_.size() == 0 && doubts_.size() == 0)
      fmt::print("no dead letters that wait: nothing to replay\n");
    for (const auto& [part, letters] : left_out_)
      fmt::print("{} skipped: {}\n", count(letters, "dead letter"), why_left_out(part.first, part.second));
    if (unsendable_.size() > 0)
      fmt::print("{} skipped: cannot be sent back; the reasons are above, and they wait as before\n",
                 count(unsendable_.size(), "dead letter"));
  }

  /// A record that cannot be published does not block the others.
  void publish_if_possible(const postgres::DeadRecord& dead) {
    try {
      publish(dead);
    } catch (const CannotBeSent& e) {
      unsendable_.add({{"number", dead.summary.number}, {"why", e.what()}});
      if (json_) return;
      fmt::print("{} skipped: {}\n", dead.summary.number, e.what());
      std::fflush(stdout);
    } catch (const InDoubt& e) {
      doubts_.add({{"number", dead.summary.number}, {"why", e.what()}});
      if (!json_) fmt::print("{} in doubt: {}\n", dead.summary.number, e.what());
      std::fflush(stdout);
      static_cast<void>(still_answers(dead.summary.from.at.topic));
    }
  }

  /// After the broker has refused a record: whether it would accept others. Throws BrokerError if it does not answer.
  [[nodiscard]] bool still_answers(const std::string& topic) const {
    return broker_->describe(topic, kLookUp).has_value();
  }

  void publish(const postgres::DeadRecord& dead) {
    const auto& summary = dead.summary;
    if (summary.from.at.topic.empty()) {
      throw CannotBeSent(Code::operation_refused,
                         fmt::format("dead letter {}: the table no longer knows its topic, and it cannot be sent back",
                                     summary.number));
    }
    if (dead.damage) {
      throw CannotBeSent(
          Code::operation_refused,
          fmt::format(
              "dead letter {}: {}. It is not sent, since it would not be the message that died; correct header_names, "
              "header_values and record_timestamp in the table dead",
              summary.number, *dead.damage));
    }
    if (!producer_) producer_ = broker_->open_producer();
    OwnedMessage message = republished(dead, partitions_of(summary.from.at.topic));
    const bool anew = is_numbered(message) && (has_lost_its_number(summary) || is_done(summary));
    if (anew) number_anew(summary, message);
    const TopicPartitionOffset place{summary.from.at, summary.offset};
    const bool is_place = !anew && summary.id == id_of_place(place, dead.incarnation);
    const SignalsWait whole;
    const auto sent = is_place ? send_known_by_place(summary, message) : send_known_by_id(summary, message);
    if (sent) say_sent(summary, *sent, anew);
    else if (!json_)
      fmt::print("{} skipped: another operator replays it, or has replayed it meanwhile\n", summary.number);
  }

  /// The inbox rejects a second copy. Absent: another operator has replayed it in the meantime.
  std::optional<ports::BrokerProducer::Sent> send_known_by_id(const postgres::DeadSummary& summary,
                                                              const OwnedMessage& message) {
    ports::BrokerProducer::Sent sent;
    try {
      if (!admin_.mark_replayed(summary, [&] { sent = producer_->send(message); })) return std::nullopt;
    } catch (const BrokerError& e) {
      refuse(summary, e);
    }
    return sent;
  }

  /// The letter waits as before. With --all the others may still be published.
  [[noreturn]] void refuse(const postgres::DeadSummary& summary, const BrokerError& e) const {
    if (all_ && still_answers(summary.from.at.topic)) throw CannotBeSent(e.code(), e.what());
    throw e;
  }

  /// A second copy would run. Absent: another operator has replayed it in the meantime.
  std::optional<ports::BrokerProducer::Sent> send_known_by_place(const postgres::DeadSummary& summary,
                                                                 OwnedMessage message) {
    std::optional<ports::BrokerProducer::Sent> sent;
    std::optional<ports::RecordNotStored> refusal;
    std::string token;
    try {
      admin_.replay_once(summary, [&](const postgres::DeadSummary& begun) {
        token = begun.replay_token.value_or("");
        message.headers.push_back({std::string(kReplayToken), token});
        try {
          sent = send_or_doubt(begun, message);
        } catch (const ports::RecordNotStored& e) {
          refusal = e;
        }
        return sent.has_value();
      });
    } catch (const std::exception& e) {
      if (!sent) throw;
      const TopicPartitionOffset at{{summary.from.at.topic, sent->partition}, sent->offset};
      throw StoreUnavailable(fmt::format(
          "dead letter {} was published as {}, which could not be recorded. Once PostgreSQL is back: turnstile dlq "
          "replay {} --done={} (the error: {})",
          summary.number, to_string(at), summary.number, token, e.what()));
    }
    if (refusal) refuse(summary, *refusal);
    return sent;
  }

  ports::BrokerProducer::Sent send_or_doubt(const postgres::DeadSummary& begun, const OwnedMessage& message) {
    try {
      return producer_->send(message);
    } catch (const ports::RecordNotStored&) {
      throw;
    } catch (const BrokerError& e) {
      throw InDoubt(e.code(),
                    fmt::format("dead letter {}: {} (the error: {})", begun.number, how_to_settle(begun), e.what()));
    }
  }

  void say_sent(const postgres::DeadSummary& summary, const ports::BrokerProducer::Sent& sent, bool anew) {
    const TopicPartitionOffset at{{summary.from.at.topic, sent.partition}, sent.offset};
    replayed_.add(
        {{"number", summary.number}, {"topic", at.at.topic}, {"partition", at.at.partition}, {"offset", at.offset}});
    if (json_) return;
    fmt::print("{} -> {}{}\n", summary.number, to_string(at), anew ? "" : caution(summary));
    std::fflush(stdout);
  }

  /// It has run before, so it must not run again unless the operator insists.
  static bool is_done(const postgres::DeadSummary& summary) { return is(summary.reason, DeadReason::duplicate); }

  /// Of the other records, the inbox knows by their numbers whether they have taken effect in the meantime.
  static bool has_lost_its_number(const postgres::DeadSummary& summary) {
    return is(summary.reason, DeadReason::outside_window) || is(summary.reason, DeadReason::no_session) ||
           is(summary.reason, DeadReason::forged);
  }

  /// It gets a session of its own, which is always the same. A record that was dead-lettered several times, or replayed
  /// twice because of a crash, is therefore one request. A producer that forged a number must not make another
  /// producer's message a duplicate.
  void number_anew(const postgres::DeadSummary& summary, OwnedMessage& message) {
    if (!producers_) producers_ = postgres::open_store(require_postgres(config_))->producers();
    const bool own = summary.id && !is(summary.reason, DeadReason::forged);
    const std::string name = "turnstile dlq replay " + (own ? summary.id->text() : std::to_string(summary.number));
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto number = again_ ? std::chrono::duration_cast<std::chrono::milliseconds>(now).count() : 1;
    std::erase_if(message.headers, [](const Header& header) { return header.name == kSentAt; });
    stamp_request(message, producers_->open({.name = name, .id = MessageId::from(name)}), number);
  }

  /// What will happen to it again if nothing else has changed.
  static std::string caution(const postgres::DeadSummary& summary) {
    if (is(summary.reason, DeadReason::missing_id))
      return "  (it has no id: it is refused again unless the topic's message_id was changed)";
    if (is(summary.reason, DeadReason::killed_process))
      return "  (unless its handler was fixed, it kills the process that runs it, and becomes a dead letter again)";
    if (is(summary.reason, DeadReason::unknown))
      return "  (it is refused again unless it was unparked: turnstile inbox unpark ID --handler NAME --rerun)";
    if (is(summary.reason, DeadReason::duplicate) || is(summary.reason, DeadReason::mismatch)) {
      return fmt::format(
          "  (its id has taken effect: it is refused again unless the id is forgotten: turnstile inbox forget {} "
          "--handler {} --yes; where the offset is the id, it runs)",
          summary.id ? summary.id->text() : "ID", one_line(summary.handler, 60));
    }
    return "";
  }

  Exit finish() {
    if (json_) {
      fmt::print("{{\n");
      replayed_.print("replayed");
      if (all_) {
        fmt::print(",\n");
        unsendable_.print("cannot_be_sent");
        fmt::print(",\n");
        doubts_.print("in_doubt");
      }
      fmt::print("\n}}\n");
    } else if (replayed_.size() > 1) {
      fmt::print("{} replayed\n", count(replayed_.size(), "dead letter"));
    }
    return doubts_.size() == 0 ? Exit::ok : Exit::problems;
  }

  bool json_;
  bool again_;  ///< replayed records must run once more
  bool all_ = false;
  Spool replayed_;
  Spool unsendable_;
  Spool doubts_;                                                         ///< since this replay
  std::map<std::pair<ReplayPart, std::string>, std::int64_t> left_out_;  ///< number by reason
  const Config& config_;
  postgres::Admin admin_;
  std::shared_ptr<ports::Producers> producers_;  ///< null until a numbered request is replayed
  std::shared_ptr<ports::Broker> broker_;
  std::shared_ptr<ports::BrokerProducer> producer_;
  std::map<std::string, std::int32_t> partitions_;
};

/// What `--all` would do.
Exit preview(const Global& global, const Options& options, std::optional<std::chrono::nanoseconds> interval) {
  auto admin = open_admin(load_settings(global));
  auto filter = dead_filter(admin, options.which);
  filter.from = options.from;
  filter.most = 10'000;
  const auto found = admin.dead_groups(filter, false);
  postgres::DeadGroups published;
  std::map<std::pair<ReplayPart, std::string>, std::int64_t> left_out;
  for (auto group : found.groups) {
    if (group.in_doubt > 0) left_out[{ReplayPart::in_doubt, ""}] += group.in_doubt;
    group.count -= group.in_doubt;
    const auto part = replay_part(group.reason, false, options.which.reason.has_value());
    if (group.count == 0) continue;
    if (part != ReplayPart::published) {
      left_out[{part, group.reason}] += group.count;
    } else {
      published.letters += group.count;
      published.groups.push_back(std::move(group));
    }
  }
  // The first one is published at once.
  const double seconds = std::chrono::duration<double>(interval.value_or(std::chrono::nanoseconds{0})).count() *
                         static_cast<double>(std::max<std::int64_t>(published.letters - 1, 0));
  if (global.json) {
    Json skipped = Json::array();
    for (const auto& [part, letters] : left_out)
      skipped.push_back({{"count", letters}, {"why", why_left_out(part.first, part.second)}});
    print(Json{{"would_replay", published.letters},
               {"seconds", interval ? Json(seconds) : Json(nullptr)},
               {"groups", to_json(published)},
               {"would_skip", skipped}});
    return Exit::ok;
  }
  fmt::print("{}would replay {}", groups_table(published), count(published.letters, "dead letter"));
  if (interval && published.letters > 0) {
    const std::chrono::seconds whole(static_cast<std::int64_t>(std::min(std::ceil(seconds), 1e12)));
    fmt::print(" in {} at {}", text::age(whole), *options.rate);
  }
  fmt::print("\n");
  for (const auto& [part, letters] : left_out)
    fmt::print("would skip {}: {}\n", count(letters, "dead letter"), why_left_out(part.first, part.second));
  return Exit::ok;
}

/// The record was published: it only marks the row.
Exit settle(const Global& global, const Options& options) {
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

Exit replay(const Global& global, const Options& options) {
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
  if (which.reason && is(*which.reason, DeadReason::forged))
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
  Replayer replayer(global, config, static_cast<bool>(options.again));
  return options.all ? replayer.all(options, interval) : replayer.one(options);
}

}  // namespace

void add_replay(CLI::App& dlq, Command& command) {
  const auto options = std::make_shared<Options>();
  auto* verb = dlq.add_subcommand(
      "replay", "publish a dead letter to the topic that it came from; the inbox decides whether it runs");
  verb->add_option("NUMBER", options->number, "as dlq list has it")->check(CLI::PositiveNumber);
  verb->add_flag("--all", options->all,
                 "all that wait when the replay starts; a later letter waits for the next replay");
  verb->add_flag("--again", options->again.given,
                 "although it was replayed already; if its replay is in doubt: --again=TOKEN, as dlq show names it");
  verb->add_flag(
      "--done", options->done.given,
      "publish nothing: record that it was replayed, if that is in doubt: --done=TOKEN, as dlq show names it");
  add_dead_options(*verb, options->which);
  verb->add_option("--rate", options->rate, "with --all: not faster than this: 100/s, 30/m, 5/h")->type_name("N/s");
  verb->add_flag("--dry-run", options->dry_run,
                 "with --all: publish nothing; print how many it would publish, and how long that takes");
  verb->add_option("--from", options->from, "with --all: none with a lower number, so that older letters go on waiting")
      ->type_name("NUMBER")
      ->check(CLI::PositiveNumber);
  verb->callback(
      [&command, options] { command.run = [&command, options] { return replay(command.global, *options); }; });
}

}  // namespace turnstile::cli
