// one_time_token of guards.hpp: the token mechanism.

#include <openssl/evp.h>
#include <openssl/rand.h>

#include <array>
#include <cstddef>

#include "guards/guard_call.hpp"
#include "turnstile/error.hpp"

namespace turnstile::postgres::one_time_token {

namespace {

using Digest = std::array<std::byte, 32>;

Digest digest_of(std::string_view token) {
  Digest digest;
  unsigned int size = 0;
  if (EVP_Digest(token.data(), token.size(), reinterpret_cast<unsigned char*>(digest.data()), &size, EVP_sha256(),
                 nullptr) != 1) {
    throw Error(Code::unexpected, "one_time_token: SHA-256 failed");
  }
  return digest;
}

std::string random_token() {
  std::array<unsigned char, 16> bits;
  if (RAND_bytes(bits.data(), static_cast<int>(bits.size())) != 1)
    throw Error(Code::unexpected, "one_time_token::issue(): the system has no random numbers");
  std::string token;
  for (const unsigned char byte : bits) {
    token += "0123456789abcdef"[byte >> 4];
    token += "0123456789abcdef"[byte & 15];
  }
  return token;
}

}  // namespace

const Table& default_table() {
  static const Table table{"turnstile", "one_time_token"};
  return table;
}

std::string issue(Transaction& tx, std::string_view subject, std::chrono::seconds valid_for, const Table& table) {
  std::string token = random_token();
  const Digest digest = digest_of(token);
  const Cell key{"digest", std::span<const std::byte>(digest)};
  GuardCall call(tx, "one_time_token::issue", table, {&key, 1});
  if (valid_for <= std::chrono::seconds::zero())
    call.fail("valid_for must be more than 0 s, or the token cannot be redeemed");
  const std::string for_whom = call.argument("subject", subject);
  const std::string seconds = call.argument("expires_at", valid_for.count());
  call.run("INSERT INTO " + call.table() + " (digest, subject, expires_at) VALUES ($1::bytea, " + for_whom +
           ", clock_timestamp() + pg_catalog.make_interval(secs => " + seconds + "::double precision))");
  return token;
}

Guarded redeem(Transaction& tx, std::string_view token, std::string_view subject, const Table& table) {
  const Digest digest = digest_of(token);
  const Cell key{"digest", std::span<const std::byte>(digest)};
  GuardCall call(tx, "one_time_token::redeem", table, {&key, 1});
  const std::string for_whom = call.argument("subject", subject);
  // As in guards.cpp: it locks and reads the row after the wait, then acts on what it found.
  return call.ask(
      "WITH found AS MATERIALIZED (SELECT t.subject, t.issued_at, t.expires_at, t.redeemed_at FROM " + call.table() +
      " AS t WHERE " + call.key_matches() + " FOR NO KEY UPDATE), redeemed AS (UPDATE " + call.table() +
      " AS t SET redeemed_at = clock_timestamp() FROM found WHERE " + call.key_matches() + " AND found.subject = " +
      for_whom + " AND found.redeemed_at IS NULL AND found.expires_at > clock_timestamp() RETURNING 1) SELECT " +
      verdict_case("EXISTS (SELECT FROM redeemed)", "found.redeemed_at IS NOT NULL AND found.subject = " + for_whom) +
      ", found.* FROM found");
}

std::int64_t purge(Transaction& tx, std::chrono::seconds keep, std::int64_t most, const Table& table) {
  const Cell bound{"expires_at", keep.count()};
  GuardCall call(tx, "one_time_token::purge", table, {&bound, 1});
  const Rows rows =
      call.run("DELETE FROM " + call.table() + " WHERE digest IN (SELECT digest FROM " + call.table() +
               " WHERE expires_at < clock_timestamp() - pg_catalog.make_interval(secs => $1::double precision) LIMIT " +
               call.argument("most", most) + "::bigint FOR UPDATE SKIP LOCKED)");
  return static_cast<std::int64_t>(rows.affected());
}

}  // namespace turnstile::postgres::one_time_token
