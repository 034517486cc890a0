#pragma once
// Stored retries, for operators: see Admin.

#include <cstdint>
#include <optional>
#include <string>

#include "turnstile/postgres/dead.hpp"
#include "turnstile/types.hpp"

namespace turnstile::postgres {

/// A message that waits for its next attempt.
struct StoredRetry {
  std::int64_t number = 0;                ///< its number for operators
  std::string handler;                    ///< the handler that runs it
  std::string topic;                      ///< with the next two: the record that failed first
  std::int32_t partition = 0;             ///< its partition
  Offset offset = 0;                      ///< its offset
  MessageId id;                           ///< of the message
  std::optional<std::string> key;         ///< of the record
  std::int64_t bytes = 0;                 ///< of the payload
  std::int64_t attempts = 0;              ///< how often its handler has failed; 0: it only waits for its key
  std::string error;                      ///< the last error
  DatabaseTime stored_at;                 ///< when it was stored first
  std::optional<DatabaseTime> due_at{};   ///< when it is sent again; absent: an earlier message of its key is stored
  bool sent = false;                      ///< it was sent again after `due_at`, and is not settled yet
  std::optional<std::int64_t> refused{};  ///< the broker refused it: its number in the outbox
};

/// Which of them. Absent: all.
struct RetryFilter {
  std::optional<std::int64_t> number{};  ///< only this one
  std::optional<std::string> topic{};    ///< only of this topic
  std::optional<std::string> handler{};  ///< only of this handler
  std::optional<std::string> key{};      ///< only with this key
  std::optional<MessageId> id{};         ///< only the messages with this id, one of each handler
};

/// How many there are.
struct RetryCounts {
  std::int64_t waiting = 0;  ///< not due yet
  std::int64_t due = 0;      ///< to be sent
  std::int64_t behind = 0;   ///< an earlier message of their key is stored
  std::int64_t sent = 0;     ///< sent again, and not settled yet
};

}  // namespace turnstile::postgres
