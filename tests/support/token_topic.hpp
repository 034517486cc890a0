#pragma once
// Reads and writes the token log in Kafka without the framework's own adapter.

#include <string>
#include <vector>

#include "tests/support/token_records.hpp"
#include "tokens/apply.hpp"

namespace turnstile::test {

/// All records of partition 0 of the topic. Throws std::runtime_error.
std::vector<LoggedEvent> read_token_topic(const std::string& topic);
/// The offset of the next record. Throws std::runtime_error.
std::int64_t end_of_topic(const std::string& topic);
/// The state after these records.
tokens::State replay(const std::vector<LoggedEvent>& records);
/// Appends records as any program with the right to write could: with a plain producer, to partition 0, acknowledged.
/// If `key` is empty, the records have no key; a compacted topic refuses such records.
void append_to_topic(const std::string& topic, const std::vector<std::string>& records, const std::string& key = "");
/// Sends the request to the broker, and waits for its answer.
void delete_topic(const std::string& topic);

}  // namespace turnstile::test
