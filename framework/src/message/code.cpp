#include "turnstile/code.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace turnstile {

namespace {

using Named = std::pair<Code, std::string_view>;
using enum Code;

constexpr std::array kNames{
    Named{config_invalid, "config_invalid"},
    Named{environment_unknown, "environment_unknown"},
    Named{retention_mismatch, "retention_mismatch"},
    Named{retention_unknown, "retention_unknown"},
    Named{retry_without_dead_letter, "retry_without_dead_letter"},
    Named{topic_missing, "topic_missing"},
    Named{admin_unavailable, "admin_unavailable"},
    Named{api_misused, "api_misused"},
    Named{halted, "halted"},
    Named{loop_stopped, "loop_stopped"},
    Named{spans_not_sent, "spans_not_sent"},
    Named{unexpected, "unexpected"},
    Named{commit_in_doubt, "commit_in_doubt"},
    Named{connections_exhausted, "connections_exhausted"},
    Named{fail_open, "fail_open"},
    Named{ids_not_deleted, "ids_not_deleted"},
    Named{migration_changed, "migration_changed"},
    Named{migration_failed, "migration_failed"},
    Named{pauses_unknown, "pauses_unknown"},
    Named{pooler_incompatible, "pooler_incompatible"},
    Named{schema_newer, "schema_newer"},
    Named{schema_outdated, "schema_outdated"},
    Named{session_ended, "session_ended"},
    Named{sql_error, "sql_error"},
    Named{store_busy, "store_busy"},
    Named{store_failed, "store_failed"},
    Named{store_permission_denied, "store_permission_denied"},
    Named{store_read_only, "store_read_only"},
    Named{store_rewound, "store_rewound"},
    Named{store_unavailable, "store_unavailable"},
    Named{transaction_ended, "transaction_ended"},
    Named{watermark_not_saved, "watermark_not_saved"},
    Named{group_offset_missing, "group_offset_missing"},
    Named{partition_fenced, "partition_fenced"},
    Named{partition_stalled, "partition_stalled"},
    Named{partition_start_unknown, "partition_start_unknown"},
    Named{read_again, "read_again"},
    Named{records_deleted, "records_deleted"},
    Named{topic_deleted, "topic_deleted"},
    Named{topic_paused, "topic_paused"},
    Named{topic_recreated, "topic_recreated"},
    Named{breaker_open, "breaker_open"},
    Named{claim_lost, "claim_lost"},
    Named{crash_suspects, "crash_suspects"},
    Named{dead_letter_refused, "dead_letter_refused"},
    Named{dead_lettered, "dead_lettered"},
    Named{duplicate, "duplicate"},
    Named{handler_failed, "handler_failed"},
    Named{handler_not_stopping, "handler_not_stopping"},
    Named{handler_overdue, "handler_overdue"},
    Named{reply_refused, "reply_refused"},
    Named{response_too_large, "response_too_large"},
    Named{result_not_recorded, "result_not_recorded"},
    Named{result_pending, "result_pending"},
    Named{too_many_dead_in_a_row, "too_many_dead_in_a_row"},
    Named{limit_invalid, "limit_invalid"},
    Named{limiter_unknown, "limiter_unknown"},
    Named{member_halted, "member_halted"},
    Named{member_paused, "member_paused"},
    Named{permits_lost, "permits_lost"},
    Named{snapshot_not_saved, "snapshot_not_saved"},
    Named{token_log_damaged, "token_log_damaged"},
    Named{token_log_deleted, "token_log_deleted"},
    Named{token_log_misconfigured, "token_log_misconfigured"},
    Named{token_log_recreated, "token_log_recreated"},
    Named{token_log_silent, "token_log_silent"},
    Named{token_log_trimmed, "token_log_trimmed"},
    Named{token_log_unreadable, "token_log_unreadable"},
    Named{token_log_write_failed, "token_log_write_failed"},
    Named{too_many_limiters, "too_many_limiters"},
    Named{kafka_shutdown_incomplete, "kafka_shutdown_incomplete"},
    Named{kafka_login_failed, "kafka_login_failed"},
    Named{kafka_permission_denied, "kafka_permission_denied"},
    Named{kafka_refused, "kafka_refused"},
    Named{kafka_unavailable, "kafka_unavailable"},
    Named{librdkafka_message, "librdkafka_message"},
    Named{max_poll_exceeded, "max_poll_exceeded"},
    Named{offset_unavailable, "offset_unavailable"},
    Named{offsets_not_committed, "offsets_not_committed"},
    Named{rebalance_failed, "rebalance_failed"},
    Named{record_too_large, "record_too_large"},
    Named{too_few_replicas, "too_few_replicas"},
    Named{heartbeat_failed, "heartbeat_failed"},
    Named{outbox_paused, "outbox_paused"},
    Named{outbox_record_refused, "outbox_record_refused"},
    Named{producer_session_expired, "producer_session_expired"},
    Named{response_not_kept, "response_not_kept"},
    Named{response_unreadable, "response_unreadable"},
    Named{not_found, "not_found"},
    Named{operation_refused, "operation_refused"},
    Named{usage, "usage"},
};

constexpr auto kCodes = [] {
  std::array<Code, kNames.size()> all{};
  std::transform(kNames.begin(), kNames.end(), all.begin(), [](const Named& named) { return named.first; });
  return all;
}();

constexpr bool in_order() {
  for (std::size_t i = 0; i < kCodes.size(); ++i) {
    if (static_cast<std::size_t>(kCodes[i]) != i) return false;
  }
  return true;
}
static_assert(in_order(), "kNames has each code once, in the order of the enumeration");

}  // namespace

std::span<const Code> codes() { return kCodes; }

std::string_view to_text(Code code) { return kNames[static_cast<std::size_t>(code)].second; }

}  // namespace turnstile
