#pragma once
// Where the verbs about limits find the token log, as consumers do; and what of it they show.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "command.hpp"
#include "text.hpp"
#include "turnstile/token_reader.hpp"

namespace turnstile::cli {

/// Of all verbs that look at a token log.
struct DomainOptions {
  std::optional<std::string> topic;
};
void add_domain_options(CLI::App& verb, DomainOptions& options);

/// The log of the domain, read by nobody yet. Creates nothing. Throws UsageError where limits are not counted over a cluster, Error where
/// no such topic exists, BrokerError.
std::unique_ptr<TokenReader> open_domain(const Global& global, const DomainOptions& options);

/// Opens it and calls `look`; once more when what it reads is deleted at this very moment, as members do when they have agreed on a
/// snapshot.
Exit look_at_domain(const Global& global, const DomainOptions& options, const std::function<Exit(TokenReader&)>& look);

/// "billing@host1:4711", as in the process's own log
std::string holder(const std::string& client, const std::string& host, std::uint32_t pid);
/// The same; of one of whom nothing is known "member 17".
std::string holder(const TokenMember& member);
Json to_json(const TokenMember& member);

/// Nothing for 0, which stands for no known time.
std::optional<Microseconds> moment(std::int64_t time_ms);
/// "2026-03-01 14:05:09 UTC", or "unknown".
std::string when_or_unknown(std::int64_t time_ms);

/// Who holds what: the table of `permits` and of `log replay`. `now_ms`: the time to which "in 8s" refers; 0: unknown.
/// `idle`: also those who hold and want nothing.
void print_permits(const TokenReader& reader, const PermitsView& view, std::int64_t now_ms, bool idle);
Json permits_as_json(const TokenReader& reader, const PermitsView& view);

}  // namespace turnstile::cli
