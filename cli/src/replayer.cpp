#include "replayer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <limits>

#include "command.hpp"
#include "database.hpp"
#include "settings.hpp"
#include "text.hpp"
#include "turnstile/dead_reason.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/ports/record_not_stored.hpp"
#include "turnstile/postgres/store.hpp"
#include "turnstile/replay.hpp"
#include "turnstile/sender.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::cli {

namespace {

bool is(const std::string& text, DeadReason reason) { return text == to_text(reason); }

/// This dead letter cannot be published, and the text tells why. Others can.
struct CannotBeSent : Error {
  using Error::Error;
};

/// The broker may have this dead letter or not, and the text tells how to find out.
struct InDoubt : BrokerError {
  using BrokerError::BrokerError;
};

constexpr const char* kDeleted = "another operator has deleted it meanwhile";
constexpr const char* kReplayed = "another operator has replayed it meanwhile";
constexpr auto kLookUp = std::chrono::seconds(3);
constexpr std::int64_t kPage = 100;

/// It has run before, so it must not run again unless the operator insists.
bool is_done(const postgres::DeadSummary& summary) { return is(summary.reason, DeadReason::duplicate); }

/// Of the other records, the inbox knows by their numbers whether they have taken effect in the meantime.
bool has_lost_its_number(const postgres::DeadSummary& summary) {
  return is(summary.reason, DeadReason::outside_window) || is(summary.reason, DeadReason::no_session) ||
         is(summary.reason, DeadReason::forged);
}

/// The consumed record, with its key, payload and headers, and with its original place.
OwnedMessage republished(const postgres::DeadRecord& dead, std::int32_t partitions) {
  OwnedMessage message = dead.record;
  // It was replayed before and dead-lettered again, so its first place is another one.
  const Message before(dead.record);
  const auto earlier = before.header(kReplayedFrom);
  if (earlier && !before.header(kFirstOrigin))
    message.headers.push_back({std::string(kFirstOrigin), std::string(*earlier)});
  std::erase_if(message.headers, [](const Header& header) {
    return header.name == kReplayedFrom || header.name == kReplayedFor || header.name == kReplayedGroup ||
           header.name == kReplayToken || header.name == kDeaths;
  });
  message.headers.push_back(
      {std::string(kReplayedFrom), to_string(TopicPartitionOffset{dead.summary.from.at, dead.summary.offset})});
  message.headers.push_back({std::string(kReplayedFor), dead.summary.handler});
  if (dead.summary.only_group) message.headers.push_back({std::string(kReplayedGroup), *dead.summary.only_group});
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

std::string why_missing(const std::string& topic) {
  return fmt::format("topic {} does not exist: create it, then replay", one_line(topic, 249));
}

/// What will happen to it again if nothing else has changed.
std::string caution(const postgres::DeadSummary& summary) {
  if (is(summary.reason, DeadReason::missing_id) && summary.edits == 0)
    return "  (it has no id: it is refused again unless the topic's message_id was changed)";
  if (is(summary.reason, DeadReason::unreadable) && summary.edits == 0)
    return "  (it has none of its headers: give it an id first, turnstile dlq edit, or have its producer send it again)";
  if (is(summary.reason, DeadReason::killed_process))
    return "  (unless its handler was fixed, it kills the process that runs it, and becomes a dead letter again)";
  if (is(summary.reason, DeadReason::unknown))
    return "  (it is refused again unless it was unparked: turnstile inbox unpark ID --handler NAME --rerun)";
  if (is(summary.reason, DeadReason::duplicate) || is(summary.reason, DeadReason::mismatch)) {
    return fmt::format(
        "  (its id has taken effect: it is refused again unless the id is forgotten: turnstile inbox forget {} "
        "{} --yes; where the offset is the id, it runs)",
        summary.id ? summary.id->text() : "ID", text::shell_option("--handler", summary.handler, "NAME"));
  }
  return "";
}

}  // namespace

void require_last_replay(const postgres::DeadSummary& dead, const Decision& decided) {
  if (!dead.replay_in_doubt) {
    if (!decided.token()) return;
    throw Refusal(fmt::format(
        "dead letter {}: no replay {} of it is in doubt; the letter {}", dead.number, one_line(*decided.token(), 80),
        dead.replayed_at ? "was replayed " + when(*dead.replayed_at) : "waits, and no replay has published it"));
  }
  if (decided && decided.token() == dead.replay_token) return;
  throw Refusal(fmt::format("dead letter {}: {}", dead.number, how_to_settle(dead)));
}

void require_replayable(const postgres::DeadSummary& dead, const Decision& again) {
  require_last_replay(dead, again);
  if (again) return;
  if (dead.replayed_at) {
    throw Refusal(
        fmt::format("dead letter {} was replayed already, {}; if it died again, it has a new number (turnstile dlq "
                    "list). --again publishes this one once more",
                    dead.number, when(*dead.replayed_at)));
  }
  if (is_done(dead)) {
    throw Refusal(fmt::format(
        "dead letter {} is a duplicate: its message has taken effect; add --again to publish it all the same",
        dead.number));
  }
}

Replayer::Replayer(const Config& config, bool again, Listener& listener)
    : again_(again), listener_(listener), config_(config), admin_(open_admin(config)) {
  auto settings = require_kafka(config);
  settings.try_emplace("delivery.timeout.ms", "15000");
  broker_ = kafka::open_broker(settings, nullptr);
}

void Replayer::all(postgres::DeadFilter filter, bool by_reason, std::optional<std::chrono::nanoseconds> interval) {
  all_ = true;
  filter.most = kPage;
  // A running consumer makes new dead letters of replayed records. They wait for the next replay.
  filter.up_to = admin_.newest_dead();
  Pace pace(interval);
  postgres::DeadPage page;
  do {
    page = admin_.dead(filter);
    for (const auto& letter : page.letters) {
      const auto part = replay_part({.reason = letter.reason,
                                     .is_in_doubt = letter.replay_in_doubt,
                                     .is_edited = letter.edits > 0,
                                     .is_asked_for = by_reason});
      if (part == ReplayPart::published) {
        if (!listener_.wait_until(pace.next(Pace::Clock::now()))) return;
        replay_if_it_waits(letter.number);
      } else {
        listener_.left_out(part, letter.reason);
      }
      listener_.settled();
    }
    filter.after = page.next;
  } while (page.next);
}

void Replayer::some(const std::vector<std::int64_t>& numbers, std::optional<std::chrono::nanoseconds> interval) {
  all_ = true;
  Pace pace(interval);
  for (const auto number : numbers) {
    if (!listener_.wait_until(pace.next(Pace::Clock::now()))) return;
    const auto dead = admin_.load_dead(number);
    if (!dead) {
      listener_.cannot_be_sent(number, fmt::format("there is no dead letter {}", number));
      continue;
    }
    try {
      require_replayable(dead->summary, {});
    } catch (const Refusal& e) {
      listener_.cannot_be_sent(number, e.what());
      continue;
    }
    publish_if_possible(*dead);
    listener_.settled();
  }
}

std::int32_t Replayer::partitions_of(const std::string& topic) {
  if (const auto known = partitions_.find(topic); known != partitions_.end()) return known->second;
  const auto info = broker_->describe(topic, kLookUp);
  if (!info) throw CannotBeSent(Code::topic_missing, why_missing(topic));
  return partitions_[topic] = info->partitions;
}

/// Another operator may have replayed it since the page was read.
void Replayer::replay_if_it_waits(std::int64_t number) {
  const auto dead = admin_.load_dead(number);
  if (!dead) listener_.was_faster(number, kDeleted);
  else if (dead->summary.replayed_at) listener_.was_faster(number, kReplayed);
  else if (dead->summary.replay_in_doubt) listener_.left_out(ReplayPart::in_doubt, dead->summary.reason);
  else publish_if_possible(*dead);
}

/// A record that cannot be published does not block the others.
void Replayer::publish_if_possible(const postgres::DeadRecord& dead) {
  try {
    publish(dead);
  } catch (const CannotBeSent& e) {
    listener_.cannot_be_sent(dead.summary.number, e.what());
  } catch (const InDoubt& e) {
    listener_.in_doubt(dead.summary.number, e.what());
    static_cast<void>(still_answers(dead.summary.from.at.topic));
  }
}

/// After the broker has refused a record: whether it would accept others. Throws BrokerError if it does not answer.
bool Replayer::still_answers(const std::string& topic) const { return broker_->describe(topic, kLookUp).has_value(); }

/// Why its row is no longer as `seen`.
std::string Replayer::what_changed(const postgres::DeadSummary& seen) {
  const auto dead = admin_.load_dead(seen.number);
  if (!dead) return kDeleted;
  if (dead->summary.replayed_at) return kReplayed;
  if (dead->summary.replay_in_doubt) return "another operator replays it";
  if (dead->summary.edits != seen.edits) return "another operator has edited it meanwhile, and it waits as before";
  return "another operator has begun to replay it meanwhile, and it waits as before";
}

void Replayer::publish(const postgres::DeadRecord& dead) {
  const auto& summary = dead.summary;
  if (summary.from.at.topic.empty()) {
    throw CannotBeSent(
        Code::operation_refused,
        fmt::format("dead letter {}: the table no longer knows its topic, and it cannot be sent back", summary.number));
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
  // While a dropped retry waits as a dead letter, a consumer passes over all records with its id.
  const bool marked_first = is_place || is(summary.reason, DeadReason::dropped);
  const std::shared_ptr<void> held = listener_.hold();
  const auto sent = marked_first ? send_after_mark(summary, message) : send_with_mark(summary, message);
  if (!sent) {
    listener_.was_faster(summary.number, what_changed(summary));
    return;
  }
  const TopicPartitionOffset at{{summary.from.at.topic, sent->partition}, sent->offset};
  listener_.sent(summary, at, anew ? "" : caution(summary));
}

/// The inbox rejects a second copy. Absent: another operator has replayed it in the meantime.
std::optional<ports::BrokerProducer::Sent> Replayer::send_with_mark(const postgres::DeadSummary& summary,
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
void Replayer::refuse(const postgres::DeadSummary& summary, const BrokerError& e) const {
  if (all_ && still_answers(summary.from.at.topic)) throw CannotBeSent(e.code(), e.what());
  if (e.code() == Code::record_too_large) {
    throw Refusal(fmt::format("dead letter {}: {} Its payload can be changed with: turnstile dlq edit {}",
                              summary.number, e.what(), summary.number));
  }
  throw e;
}

/// The mark is committed before the record is sent, so that there is one copy only. Absent: another operator has replayed
/// it in the meantime.
std::optional<ports::BrokerProducer::Sent> Replayer::send_after_mark(const postgres::DeadSummary& summary,
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

ports::BrokerProducer::Sent Replayer::send_or_doubt(const postgres::DeadSummary& begun, const OwnedMessage& message) {
  try {
    return producer_->send(message);
  } catch (const ports::RecordNotStored&) {
    throw;
  } catch (const BrokerError& e) {
    throw InDoubt(e.code(),
                  fmt::format("dead letter {}: {} (the error: {})", begun.number, how_to_settle(begun), e.what()));
  }
}

/// It gets a session of its own, which is always the same. A record that was dead-lettered several times, or replayed
/// twice because of a crash, is therefore one request. A producer that forged a number must not make another
/// producer's message a duplicate.
void Replayer::number_anew(const postgres::DeadSummary& summary, OwnedMessage& message) {
  if (!producers_) producers_ = postgres::open_store(require_postgres(config_))->producers();
  const bool own = summary.id && !is(summary.reason, DeadReason::forged);
  const std::string name = "turnstile dlq replay " + (own ? summary.id->text() : std::to_string(summary.number));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto number = again_ ? std::chrono::duration_cast<std::chrono::milliseconds>(now).count() : 1;
  std::erase_if(message.headers, [](const Header& header) { return header.name == kSentAt; });
  stamp_request(message, producers_->open({.name = name, .id = MessageId::from(name)}), number);
}

std::vector<std::pair<std::int64_t, std::string>> ReplayPreview::skipped() const {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (const auto& [part, letters] : left_out) all.emplace_back(letters, why_left_out(part.first, part.second));
  for (const auto& [why, letters] : cannot_be_sent) all.emplace_back(letters, why);
  return all;
}

ReplayPreview preview_replay(const Config& config, postgres::Admin& admin, postgres::DeadFilter filter, bool by_reason,
                             std::optional<std::chrono::nanoseconds> interval) {
  ReplayPreview preview;
  const bool names_broker = config.kafka.contains("bootstrap.servers");
  const auto broker = names_broker ? kafka::open_broker(config.kafka, nullptr) : nullptr;
  std::map<std::string, std::string> why_not;  // by topic; empty: its letters can be sent
  const auto why_not_sent = [&](const std::string& topic) {
    if (topic.empty()) return std::string("the table no longer knows their topic");
    if (!broker) return std::string();
    const auto [known, is_new] = why_not.try_emplace(topic);
    if (is_new && !broker->describe(topic, kLookUp)) known->second = why_missing(topic);
    return known->second;
  };
  const auto part_of = [&](const std::string& reason, bool is_edited) {
    return replay_part({.reason = reason, .is_edited = is_edited, .is_asked_for = by_reason});
  };
  // Whether they were edited, and how many.
  const auto split = [](const postgres::DeadGroup& group) {
    return std::array{std::pair(false, group.count - group.in_doubt - group.edited), std::pair(true, group.edited)};
  };
  filter.most = std::numeric_limits<std::int64_t>::max();
  const auto groups = admin.dead_groups(filter, false).groups;
  filter.damaged = true;
  std::map<std::array<std::string, 3>, postgres::DeadGroup> damaged;
  for (auto& group : admin.dead_groups(filter, false).groups)
    damaged.insert_or_assign({group.topic, group.handler, group.reason}, std::move(group));
  for (auto group : groups) {
    if (group.in_doubt > 0) preview.left_out[{ReplayPart::in_doubt, ""}] += group.in_doubt;
    const auto parts = split(group);
    group.count = 0;
    for (const auto& [is_edited, count] : parts) {
      const auto part = part_of(group.reason, is_edited);
      if (part == ReplayPart::published) group.count += count;
      else if (count > 0) preview.left_out[{part, group.reason}] += count;
    }
    if (group.count == 0) continue;
    if (const auto why = why_not_sent(group.topic); !why.empty()) {
      preview.cannot_be_sent[why] += group.count;
      continue;
    }
    if (const auto found = damaged.find({group.topic, group.handler, group.reason}); found != damaged.end()) {
      for (const auto& [is_edited, count] : split(found->second)) {
        if (part_of(group.reason, is_edited) != ReplayPart::published || count == 0) continue;
        preview.cannot_be_sent["their rows were changed by hand (see turnstile dlq show)"] += count;
        group.count -= count;
      }
      if (group.count <= 0) continue;  // fewer, if others were replayed between the two counts
    }
    preview.published.letters += group.count;
    preview.published.groups.push_back(std::move(group));
  }
  // The first one is published at once.
  preview.seconds = std::chrono::duration<double>(interval.value_or(std::chrono::nanoseconds{0})).count() *
                    static_cast<double>(std::max<std::int64_t>(preview.published.letters - 1, 0));
  return preview;
}

}  // namespace turnstile::cli
