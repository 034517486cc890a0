#pragma once
// A token log can be divided into parts, each a partition of its topic with a state of its own. A limiter lives in one of
// them, its home, chosen by its name. A member joins the parts of the limiters that it uses.
//
// A log begins with one part, part 0. It is divided once, while it is in use:
//   1. Divided in part 0 closes it. A closed part grants nothing: its permits return as their handlers end, or with their
//      leases. From then on part 0 is only the directory, which tells the number of parts.
//   2. Nobody holds permits in part 0 of the limiters whose home is part P. That stays so, because part 0 is closed.
//   3. Opened in part P, by anybody that has read that in part 0. From then on part P grants.
// A permit is therefore never granted in two parts at once. Opened is in effect once, in its part, so a copy or a late one
// does nothing. Nor does a record that comes late from an earlier topic of the same name: Divided names a member of its
// log, and Opened and Joined name the division and the part. What members write in one part is therefore void in any other.

#include <cstdint>
#include <map>
#include <optional>
#include <string_view>

namespace turnstile::tokens {

struct State;
struct Opened;

/// The version from which a log can be divided.
inline constexpr std::uint32_t kDividedVersion = 2;
/// Including part 0. A process that reads all parts of such a log needs about 890 file descriptors with Kafka (measured
/// with one broker), and many systems allow 1,024.
inline constexpr std::uint32_t kMostParts = 64;

/// The home of a limiter in a log of so many parts.
[[nodiscard]] std::uint32_t part_of(std::string_view limiter, std::uint32_t parts);
/// Part 0 of a divided log: no limiter's home.
[[nodiscard]] bool is_directory(const State& state);
/// Whether somebody still has permits in it. Of a directory, because others have no use for the answer.
[[nodiscard]] bool is_in_use(const State& directory);
/// A directory in which nobody has permits any more. It stays that, and needs no members.
[[nodiscard]] bool is_left(const State& state);
/// The parts that can open, with what opens each. Somebody still has permits in the directory of limiters that have their
/// home in one of the others.
using Openings = std::map<std::uint32_t, Opened>;
[[nodiscard]] Openings moved_out(const State& directory);
/// What opens this part. Absent: it cannot open yet.
[[nodiscard]] std::optional<Opened> moved_out(const State& directory, std::uint32_t part);
/// Whether two states are of the same part, and of the same division if it is not part 0. A snapshot that is not belongs to
/// another log.
[[nodiscard]] bool is_same_part(const State& one, const State& other);
/// Whether `newer` can be a later state of the same log. A log is divided once, so a state of another division belongs to
/// another log.
[[nodiscard]] bool can_become(const State& state, const State& newer);
/// The state of a part before its first record. `part` is not 0.
[[nodiscard]] State first_state(const State& directory, std::uint32_t part);

}  // namespace turnstile::tokens
