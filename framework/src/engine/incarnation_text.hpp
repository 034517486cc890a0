#pragma once
// The incarnations of a partition's log, as text: each process commits it to Kafka with the group's offset. So the next
// owner knows to which log that offset belongs, even if the database has forgotten it. Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "turnstile/types.hpp"

namespace turnstile::detail {

/// Where each incarnation of the log began: the records below are those of the incarnation before. 0: none of them is
/// the same, or it is unknown.
using Incarnations = std::map<std::int32_t, Offset>;

/// For example `turnstile:0@0,1@800`. Contains only the last 8: a database does not go back further.
[[nodiscard]] std::string write_incarnations(const Incarnations& incarnations);
/// Absent: another program wrote this text, or nobody.
[[nodiscard]] std::optional<Incarnations> read_incarnations(std::string_view text);

}  // namespace turnstile::detail
