#pragma once
// The statements of stored retries. "@." stands for the schema; see Statements.

#include <string_view>

namespace turnstile::postgres {

// The functions are those of migrations 0017 to 0020.

inline constexpr std::string_view kLockedRetries =
    "SELECT number, is_behind::integer::bigint FROM @.lock_retries($1::smallint, $2::bigint[], $3::bigint[], $4::uuid[])";
inline constexpr std::string_view kStoredRetries = "SELECT @.stored_retries($1::smallint, $2::uuid[])";
inline constexpr std::string_view kRetryKeys = "SELECT @.keys_with_retries($1::smallint, $2::bytea[])";
/// The columns of kWaitingMessages, the time of the entry, and the values of the headers that mark a replay.
inline constexpr std::string_view kRetriesToSend =
    "SELECT shard, number, message_id, topic, record_key, record_payload, header_names, header_values, due_us, came_from, "
    "for_handler, as_attempt, of_group FROM @.retries_to_send($1::bigint[], $2::bigint, $3::bigint)";
inline constexpr std::string_view kLookForDueRetries =
    "SELECT due, next_ms FROM @.look_for_due_retries($1::bigint[], $2::bigint)";
inline constexpr std::string_view kRetriesAreSent = "SELECT @.retries_are_sent($1::bigint[], $2::bigint[])";
inline constexpr std::string_view kRefuseRetry =
    "SELECT number FROM @.refuse_retry($1::bigint, $2::bigint, $3::text) AS number WHERE number IS NOT NULL";

inline constexpr std::string_view kTakeBackIds = "SELECT @.take_back_ids($1::smallint, $2::uuid[])";
inline constexpr std::string_view kAddRetries = R"(
SELECT @.add_retries($1::smallint, $2::uuid[], $3::integer, $4::integer, $5::bigint[], $6::bigint[], $7::bigint[],
                     $8::boolean, $9::bigint[], $10::text, $11::integer, $12::bytea[], $13::bytea[], $14::bytea[],
                     $15::bytea[], $16::bigint[], $17::bigint[], $18::bytea[]))";
inline constexpr std::string_view kDeferRetries =
    "SELECT @.defer_retries($1::smallint, $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bytea[], $7::bigint[])";
inline constexpr std::string_view kEndRetries = "SELECT @.end_retries($1::smallint, $2::bigint[], $3::bigint[])";

}  // namespace turnstile::postgres
