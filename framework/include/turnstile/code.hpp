#pragma once
// A stable word for each situation that a log line at warn or above, or an error, reports. docs/operations/runbook.md
// explains for each code what it means, what recovers by itself, and what to do. A code never changes its meaning; a
// new situation gets a new code.

#include <cstdint>
#include <span>
#include <string_view>

namespace turnstile {

/// The situation that a log line or an error reports.
enum class Code : std::uint8_t {
  // Settings and start
  config_invalid,             ///< Settings are wrong or contradict each other.
  environment_unknown,        ///< A variable TURNSTILE_… changes nothing.
  retention_mismatch,         ///< Ids are not kept as long as the topic keeps its records.
  retention_unknown,          ///< How long a topic keeps its records is not known.
  retry_without_dead_letter,  ///< A message that always fails is retried forever.
  topic_missing,              ///< A topic does not exist in Kafka.

  // The process
  admin_unavailable,  ///< The admin endpoint cannot listen on its address.
  api_misused,        ///< The program called Turnstile in a way that cannot work.
  halted,             ///< A process cannot continue, and waiting does not help.
  loop_stopped,       ///< PollLoop::stop() was called before the message was handled.
  spans_not_sent,     ///< Spans were lost, or wait for the collector.
  unexpected,         ///< An operation failed for a reason that has no code of its own.

  // PostgreSQL
  commit_in_doubt,        ///< The answer to COMMIT was lost.
  connections_exhausted,  ///< All connections of the pool were in use for too long.
  fail_open,              ///< Handlers run, or ran, without claims during an outage of PostgreSQL.
  ids_not_deleted,        ///< Old ids cannot be deleted now.
  migration_changed,      ///< A migration file differs from the one that was run.
  migration_failed,       ///< PostgreSQL refused a migration.
  pauses_unknown,         ///< PostgreSQL does not tell what is paused.
  pooler_incompatible,    ///< Prepared statements do not survive on a connection of a pooler.
  schema_newer,           ///< The schema has migrations that this build does not know.
  schema_outdated,        ///< The schema lacks tables or migrations that this build needs.
  session_ended,          ///< A session was ended that stood still and kept a partition from its next owner.
  sql_error,              ///< PostgreSQL refused a statement of a handler, of the program, or of the command line.
  store_busy,    ///< A lock timeout, a deadlock, a serialization failure, or a connection that a statement lost.
  store_failed,  ///< PostgreSQL refuses a statement of Turnstile's own.
  store_permission_denied,  ///< The role lacks a right in PostgreSQL.
  store_read_only,          ///< The PostgreSQL server accepts no writes.
  store_rewound,            ///< The database has lost transactions that it had committed.
  store_unavailable,        ///< PostgreSQL does not answer.
  transaction_ended,        ///< A handler ended the transaction of its batch.
  watermark_not_saved,      ///< The watermarks of partitions could not be saved.

  // Partitions
  group_offset_missing,     ///< Kafka has no committed offset of the group, and the database has a watermark.
  partition_fenced,         ///< Another process owns the partition, or the database has changed.
  partition_stalled,        ///< A partition makes no progress.
  partition_start_unknown,  ///< Where to read a partition from could not be determined.
  read_again,               ///< A PollLoop must read a partition again from a lower offset.
  records_deleted,          ///< Kafka deleted records that the database does not have as settled.
  topic_deleted,            ///< A topic was deleted while it was consumed.
  topic_paused,             ///< An operator has paused a topic, a partition or a key.
  topic_recreated,          ///< A topic was deleted and created again, or records were cut off its end.

  // Messages and handlers
  breaker_open,            ///< Too many calls of a handler failed, and its topic pauses.
  claim_lost,              ///< The claim of a running message was lost.
  crash_suspects,          ///< Messages were running when a process died.
  dead_letter_refused,     ///< A message failed permanently, and its dead letter could not be written.
  dead_lettered,           ///< A message became a dead letter.
  duplicate,               ///< The id was seen before, and the policy is `raise`.
  handler_failed,          ///< A handler failed, and its message is retried.
  handler_not_stopping,    ///< Handlers ignore their stop_token.
  handler_overdue,         ///< A handler runs for longer than handler_timeout.
  reply_refused,           ///< A message asks for a reply that cannot be sent.
  response_too_large,      ///< A response has more bytes than max_response.
  result_not_recorded,     ///< A leased message finished, and its result cannot be recorded.
  result_pending,          ///< A leased message finished, and its result will be recorded when PostgreSQL answers.
  too_many_dead_in_a_row,  ///< A partition stopped after `stop_after_dead` dead letters in a row.

  // Limits
  limit_invalid,            ///< A limit or the name of a limiter is out of range, or one limiter has two limits.
  limiter_unknown,          ///< No program has a limiter of this name.
  member_halted,            ///< A member of a token domain cannot continue.
  member_paused,            ///< The process stood still for longer than it may.
  permits_lost,             ///< Permits ended while handlers ran under them.
  snapshot_not_saved,       ///< A snapshot of the token log could not be saved.
  token_log_damaged,        ///< Records of the token log are missing or damaged.
  token_log_deleted,        ///< The topic of the token log was deleted.
  token_log_misconfigured,  ///< The topic of the token log has wrong settings.
  token_log_recreated,      ///< The newest snapshot belongs to an earlier topic of the same name.
  token_log_silent,         ///< Nothing that this process wrote to the token log has come back in time.
  token_log_trimmed,        ///< The token log was trimmed beyond what a member has read.
  token_log_unreadable,     ///< A record or a snapshot of the token log cannot be read now.
  token_log_write_failed,   ///< Records could not be written to the token log.
  too_many_limiters,        ///< The token domain has as many limiters as it can have.

  // Kafka
  kafka_shutdown_incomplete,  ///< A Kafka client could not leave its group, or end, in time.
  kafka_login_failed,         ///< Kafka refuses the credentials or the certificate.
  kafka_permission_denied,    ///< The user lacks a right in Kafka.
  kafka_refused,              ///< Kafka refused a request, or the settings of a group member.
  kafka_unavailable,          ///< Kafka does not answer.
  librdkafka_message,         ///< Kafka's client library, librdkafka, reported a problem.
  max_poll_exceeded,          ///< The polling thread was held up for longer than max.poll.interval.ms.
  offset_unavailable,         ///< Kafka has no record at the offset, and auto.offset.reset is error.
  offsets_not_committed,      ///< The group's offsets could not be committed.
  rebalance_failed,           ///< A rebalance of the group failed.
  record_too_large,           ///< A record has more bytes than Kafka accepts.
  too_few_replicas,           ///< Fewer replicas are in sync than min.insync.replicas.

  // Outbox and producers
  heartbeat_failed,          ///< A producer session could not send its heartbeat.
  outbox_paused,             ///< The outbox sends nothing for now.
  outbox_record_refused,     ///< Kafka refuses a record of the outbox.
  producer_session_expired,  ///< A producer session expired.

  // HTTP
  response_not_kept,    ///< A response could not be stored, so its request was rolled back.
  response_unreadable,  ///< A stored response has the format of a newer version.

  // The command line
  not_found,          ///< What the command names does not exist.
  operation_refused,  ///< The command would do more harm than good.
  usage,              ///< The arguments of the command are wrong.
};

/// All of them, in the order of the enumeration.
std::span<const Code> codes();
/// The name of the enumerator, as in `code=store_unavailable`.
std::string_view to_text(Code code);

}  // namespace turnstile
