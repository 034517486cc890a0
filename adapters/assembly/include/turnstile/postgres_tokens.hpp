#pragma once
// The tokens of turnstile/http/tokens.hpp, stored by the guard one_time_token. For programs that link turnstile::http
// and turnstile::postgres.

#include <chrono>
#include <string>
#include <string_view>

#include "turnstile/http/tokens.hpp"
#include "turnstile/postgres/guards.hpp"

namespace turnstile::http {

/// One-time tokens that are valid for `valid_for`, in the table of `turnstile migrate up` or one like it. Issuing a
/// token deletes up to two tokens that expired at least `valid_for` ago. The table therefore holds only recent tokens,
/// and needs no cleanup job.
inline Tokens postgres_tokens(std::chrono::seconds valid_for,
                              const postgres::Table& table = postgres::one_time_token::default_table()) {
  Tokens tokens;
  tokens.issue = [valid_for, table](Transaction& tx, std::string_view subject) {
    postgres::one_time_token::purge(tx, valid_for, 2, table);
    return postgres::one_time_token::issue(tx, subject, valid_for, table);
  };
  tokens.redeem = [table](Transaction& tx, std::string_view token, std::string_view subject) {
    switch (postgres::one_time_token::redeem(tx, token, subject, table).verdict) {
      case postgres::Verdict::applied: return Redeemed::now;
      case postgres::Verdict::already_applied: return Redeemed::before;
      case postgres::Verdict::conflict: break;
    }
    return Redeemed::never;
  };
  return tokens;
}

}  // namespace turnstile::http
