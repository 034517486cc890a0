#pragma once
// How the verbs about limits find the token log (as consumers do), and how they show it.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "command.hpp"
#include "text.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile::cli {

/// The options of all verbs that read a token log.
struct DomainOptions {
  std::optional<std::string> topic;
  std::optional<std::string> limiter;  ///< of a divided log: the part of this limiter, instead of part 0
};
void add_domain_options(Verb verb, DomainOptions& options);
/// For the verbs that read only one part of a divided log.
void add_part_options(Verb verb, DomainOptions& options);
/// Tells that `reader` reads a part in which no permits are granted.
void warn_of_directory(const TokenReader& reader, const DomainOptions& options);

/// The log of the domain, not read yet. Creates nothing. Throws UsageError if limits are not counted over a cluster,
/// Error if there is no such topic, and BrokerError.
std::unique_ptr<TokenReader> open_domain(const Global& global, const DomainOptions& options);
/// The topic of the domain's log, and how to reach it. Throws UsageError if limits are not counted over a cluster.
struct DomainTopic {
  kafka::Settings kafka;
  std::string topic;
};
DomainTopic topic_of(const Global& global, const DomainOptions& options);

/// "topic 'x' at host:9092, after position 17". Each part of a divided log has positions of its own.
std::string where_read(const TokenReader& reader, const PermitsView& view);
/// The names of some limiters, and how many there are more.
std::string some_of(const std::vector<std::string>& limiters);
/// Prints a line about limiters that wait for the end of a division, if there are any.
void print_moving(const PermitsView& view);

/// Opens the log and calls `look`. It repeats that once if records are deleted while it reads, as members do after they
/// have agreed on a snapshot.
Exit look_at_domain(const Global& global, const DomainOptions& options, const std::function<Exit(TokenReader&)>& look);

/// "billing@host1:4711", as in the process's own log
std::string holder(const std::string& client, const std::string& host, std::uint32_t pid);
/// The same for a member. If nothing is known about it: "member 17".
std::string holder(const TokenMember& member);
Json to_json(const TokenMember& member);

/// Absent for 0, which means an unknown time.
std::optional<Microseconds> moment(std::int64_t time_ms);
/// "2026-03-01 14:05:09 UTC", or "unknown".
std::string when_or_unknown(std::int64_t time_ms);

/// The table of `permits` and of `log replay`: the holders of permits. `now_ms` is the time to which "in 8s" refers; 0:
/// unknown. `idle` includes members that hold and want nothing.
void print_permits(const TokenReader& reader, const PermitsView& view, std::int64_t now_ms, bool idle);
Json permits_as_json(const TokenReader& reader, const PermitsView& view);

}  // namespace turnstile::cli
