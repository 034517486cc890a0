#pragma once
// What the tables know of the messages of a topic that a group would read again: see Admin in
// turnstile/postgres/admin.hpp.

#include <cstdint>
#include <optional>
#include <vector>

#include "turnstile/postgres/dead.hpp"
#include "turnstile/types.hpp"

namespace turnstile::postgres {

/// A partition that a consumer of a group has claimed in this schema.
struct HandledPartition {
  std::int32_t partition = 0;     ///< within the topic
  std::int32_t incarnation = 0;   ///< of the partition's log
  std::optional<Offset> settled;  ///< modes by_offset and numbered: all records below it are settled
};

/// A topic as a handler of a group knows it.
struct HandledTopic {
  std::vector<HandledPartition> partitions;  ///< in their order; empty: the group keeps nothing of the topic here
  std::optional<DatabaseTime> all_since;     ///< all ids since then are there; absent: none was deleted for its age
  DatabaseTime now;                          ///< of the server
};

/// What happens to a message that is delivered again.
enum class IdFate : std::uint8_t {
  none,         ///< it runs: nothing is known of it
  took_effect,  ///< it is a duplicate
  stored,       ///< it does not run: it waits for a later attempt (table `retry`), or an operator dropped it there
  in_doubt,     ///< it is parked, or it is in doubt and `unknown` decides
  dead,         ///< it is a dead letter. It runs, unless its offset is its id
  killed,       ///< it is a dead letter that killed its process. It does not run
};

}  // namespace turnstile::postgres
