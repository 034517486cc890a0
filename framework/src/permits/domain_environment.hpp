#pragma once
// What a member of a token domain needs from its process: a clock, ids, and its settings.

#include <functional>
#include <string>

#include "tokens/member_settings.hpp"
#include "tokens/state.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::detail {

/// The environment of a member. The simulator has another one.
struct DomainEnvironment {
  std::function<tokens::Micros()> clock;      ///< steady
  std::function<tokens::MemberId()> next_id;  ///< returns a new id for each call
  std::uint32_t knows = tokens::kNewestVersion;
  bool knows_rest = true;  ///< false: as builds before that
  static DomainEnvironment of_this_process();
};

tokens::MemberId random_id();

/// `log`: its name, for messages.
tokens::MemberSettings member_settings(const TokenSettings& settings, const DomainEnvironment& environment,
                                       std::string log);

}  // namespace turnstile::detail
