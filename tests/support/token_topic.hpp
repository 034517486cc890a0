#pragma once
// The token log as Kafka has it, read and written past the framework's own adapter.

#include <string>
#include <vector>

#include "tests/support/token_records.hpp"
#include "tokens/state.hpp"

namespace turnstile::test {

/// All that partition 0 of the topic has now. Throws std::runtime_error.
std::vector<LoggedEvent> read_token_topic(const std::string& topic);
/// The offset that the next record gets. Throws std::runtime_error.
std::int64_t end_of_topic(const std::string& topic);
/// What the records mean.
tokens::State replay(const std::vector<LoggedEvent>& records);
/// As somebody would who has the right to write there: a plain producer, into partition 0; acknowledged. Without a key where it is
/// empty; a compacted topic takes no such record.
void append_to_topic(const std::string& topic, const std::vector<std::string>& records, const std::string& key = "");
/// Asks the broker, and waits for its answer.
void delete_topic(const std::string& topic);

}  // namespace turnstile::test
