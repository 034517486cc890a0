#pragma once
// The tokens of turnstile/http/tokens.hpp, kept by the guard one_time_token. For programs that link turnstile::http and turnstile::postgres.

#include <chrono>
#include <string>
#include <string_view>

#include "turnstile/http/tokens.hpp"
#include "turnstile/postgres/guards.hpp"

namespace turnstile::http {

/// Tokens that are good for `valid_for`, in the table of `turnstile migrate up` or one like it. Each that is issued takes away two whose
/// time has been over for `valid_for`, so the table holds no more than were issued lately, and nobody else need purge it.
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
