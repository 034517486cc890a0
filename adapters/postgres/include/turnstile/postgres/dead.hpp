#pragma once
// Dead letters and parked messages, as operators see them: see Admin in turnstile/postgres/admin.hpp.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "turnstile/message.hpp"
#include "turnstile/types.hpp"

namespace turnstile::postgres {

/// A time of the database's clock. If a row was changed by hand to 'infinity', it is the year 292277; '-infinity' is
/// 4713 BC.
using DatabaseTime = std::chrono::sys_time<std::chrono::microseconds>;

/// A partition as a consumer group reads it.
struct GroupPartition {
  std::string group;  ///< the consumer group
  TopicPartition at;  ///< the topic and the partition
};

/// A dead letter without its record.
struct DeadSummary {
  std::int64_t number = 0;                  ///< its number for operators
  std::string handler;                      ///< the handler that refused it
  std::optional<std::string> only_group{};  ///< the only consumer group that may use the handler's name; absent: any
  GroupPartition from;                      ///< where the record was
  Offset offset = 0;                        ///< of the record
  std::optional<MessageId> id;              ///< absent: it had none
  std::string reason;                       ///< as in the table: see DeadReason
  std::string error;                        ///< the last error
  int attempts = 0;                         ///< as in the header turnstile-attempts
  DatabaseTime died_at;                     ///< when it became a dead letter
  std::optional<DatabaseTime> replayed_at;  ///< the last replay; absent: not replayed, or its last replay is in doubt
  /// replay_once() has begun, and has not recorded its end. Another process replays the dead letter now, or died while
  /// it did. In the latter case it may have been published.
  bool replay_in_doubt = false;
  /// When the replay in doubt began. Absent: none is in doubt, or an earlier build began it.
  std::optional<DatabaseTime> replay_began_at{};
  /// Names the replay in doubt: no other replay has the same token. Absent if `replay_began_at` is.
  std::optional<std::string> replay_token{};
  /// What the row says about replays. A replay changes the row only if it still says the same.
  std::optional<std::string> replay_mark{};
  /// How often an operator has changed the record. A replay publishes it only if this has not changed.
  int edits = 0;
  std::string cursor{};  ///< its place in a list: DeadFilter::after
};

/// An operator has changed the record of a dead letter.
struct DeadEdit {
  DatabaseTime edited_at;  ///< when
  std::string edited_by;   ///< the user and the host of the command, and the role in the database
};

/// A dead letter with its record, byte by byte, as it was first consumed, or as an operator has edited it. The table cannot store a timestamp after the
/// year 287396, so such a record has none.
struct DeadRecord {
  DeadSummary summary;                              ///< everything but the record
  OwnedMessage record;                              ///< the record
  std::optional<TopicPartitionOffset> dead_letter;  ///< where it was produced; absent: parked in the table only
  std::int32_t incarnation = 0;                     ///< of its topic
  /// Why `record` differs from the consumed record: the row was changed by hand. Absent: it does not differ.
  std::optional<std::string> damage{};
  std::vector<DeadEdit> edits{};  ///< the oldest first
};

/// Which dead letters to list. An absent member does not restrict the list.
struct DeadFilter {
  std::optional<std::string> handler;  ///< of this handler
  std::optional<std::string> topic;    ///< of this topic
  std::optional<MessageId> id;         ///< of this message id
  /// Includes replayed dead letters. Dead letters in doubt are always included.
  bool with_replayed = false;
  std::optional<std::string> reason{};  ///< with this reason
  std::optional<DatabaseTime> since{};  ///< that died at this time or later
  std::optional<DatabaseTime> until{};  ///< that died before this time
  std::optional<Header> header{};       ///< with a header of this name and this value
  std::optional<std::string> text{};    ///< with these bytes in the payload
  bool damaged = false;                 ///< only those whose row was changed by hand: see DeadRecord::damage
  std::optional<std::int64_t> from{};   ///< only this number and greater ones
  std::optional<std::int64_t> up_to{};  ///< only numbers up to this
  std::optional<std::string> after{};   ///< only those behind this DeadSummary::cursor
  std::int64_t most = 50;               ///< the largest number of dead letters
};

/// Some dead letters of a list.
struct DeadPage {
  std::vector<DeadSummary> letters;  ///< up to DeadFilter::most
  /// DeadFilter::after for the next page. Absent: there are no more.
  std::optional<std::string> next;
};

/// Dead letters that have died of the same.
struct DeadGroup {
  std::string handler,     ///< empty if the table does not know the handler any more
      topic,               ///< empty if the table does not know the topic any more
      reason,              ///< as in the table: see DeadReason
      error;               ///< with # for numbers and hexadecimal ids
  std::int64_t count = 0,  ///< how many
      in_doubt = 0,        ///< how many of them have a replay in doubt
      edited = 0,          ///< how many of the others were edited
      replayed = 0,        ///< how many of them were replayed
      example = 0;         ///< the lowest number among them
  DatabaseTime oldest,     ///< when the first of them died
      newest;              ///< when the last of them died
};

/// The result of Admin::dead_groups().
struct DeadGroups {
  std::vector<DeadGroup> groups;  ///< the largest first
  std::int64_t of_groups = 0;     ///< how many groups there are, with those that are left out
  std::int64_t letters = 0;       ///< how many dead letters all of them have
};

/// What Admin::purge_dead() deletes. `which.until` is required.
struct DeadPurge {
  DeadFilter which;                                    ///< its `after` and `most` have no meaning
  bool only_replayed = false;                          ///< only those that were replayed
  std::function<bool(std::int64_t deleted)> on_batch;  ///< called between transactions; false stops
};

/// The result of Admin::purge_dead().
struct DeadPurgeResult {
  std::int64_t deleted = 0;  ///< how many
  bool complete = true;      ///< false: on_batch has stopped it
};

/// The dead letters of a group's topic that were not replayed.
struct DeadOfTopic {
  std::string group,       ///< the consumer group; empty if the fence row does not exist
      topic;               ///< empty if the fence row does not exist
  std::int64_t count = 0;  ///< how many
};

}  // namespace turnstile::postgres
