// The caller's view of a token domain: turnstile/tokens.hpp over a DividedDomain.

#include <memory>
#include <string>
#include <utility>

#include "permits/divided_domain.hpp"
#include "turnstile/log.hpp"

namespace turnstile {

std::shared_ptr<TokenDomain> join_token_domain(TokenLogParts open_log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger) {
  if (!logger) logger = make_logger({});
  return std::make_shared<detail::DividedDomain>(std::move(open_log), settings, std::move(logger));
}

std::shared_ptr<TokenDomain> join_token_domain(std::unique_ptr<ports::TokenLog> log, const TokenSettings& settings,
                                               std::shared_ptr<spdlog::logger> logger) {
  const auto only = std::make_shared<std::unique_ptr<ports::TokenLog>>(std::move(log));
  return join_token_domain(
      [only](std::uint32_t part) {
        if (part == 0 && *only) return std::move(*only);
        throw TokenLogBroken(
            "the token log is divided into parts, and this program was given only its first part; call join_token_domain() with a TokenLogParts");
      },
      settings, std::move(logger));
}

}  // namespace turnstile
