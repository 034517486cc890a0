#pragma once
// The inbox without Kafka: for an HTTP service, a cron job, or your own loop. An effect that runs under an id happens
// once, in any process. Later callers with the same id get the response of the run that took effect.
//
//   turnstile::Inbox inbox{turnstile::postgres::open_store({.url = turnstile::Secret("postgresql://localhost/app")})};
//   const auto charged = inbox.once("charge", request_id, [&](turnstile::Context& ctx) {
//     ctx.tx().exec("UPDATE account SET cents = cents - $1 WHERE name = $2", cents, name);
//     ctx.reply("receipt 17");
//   });
//   send(charged.response.value_or(""));   // "receipt 17", for every caller with this id
//
// The name of the handler is the scope of its ids: two handlers can each take the same id once. `turnstile migrate up`
// creates the schema. Ids are kept forever unless a program calls keep_ids().
//
// In a test, Inbox{std::make_shared<turnstile::testing::MemoryInbox>()} needs no database.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>

#include "turnstile/context.hpp"
#include "turnstile/ports/store.hpp"

namespace turnstile {

/// The result of once().
struct Once {
  /// How the call ended.
  enum class Kind : std::uint8_t {
    ran,       ///< this call ran the effect
    repeated,  ///< the id has taken effect already; nothing ran, and `response` is the stored response
    mismatch,  ///< the id has taken effect with a different body; nothing ran, and there is no response
    running,   ///< a concurrent call was still running after `wait`; nothing ran, so call again
  };
  Kind kind = Kind::ran;                ///< how the call ended
  std::optional<std::string> response;  ///< the reply, byte for byte; absent if the effect did not reply
};

/// How long once() waits, which body it compares, and which limits it sets.
struct OnceOptions {
  /// The body that came with the id. Turnstile stores a hash of it, and a call with the same id and another body is a
  /// mismatch. Absent: bodies are not compared.
  std::optional<std::string_view> body{};
  /// How long a call waits for a concurrent call with the same id; at least 50 ms. In the caller's own transaction that
  /// transaction's lock_timeout applies instead.
  std::chrono::milliseconds wait{5'000};
  /// PostgreSQL ends the transaction if the effect sends no statement for this time.
  std::chrono::milliseconds idle_timeout{30'000};
  std::size_t max_response = 64 * 1024;  ///< in bytes
};

/// Thread-safe. Calls run concurrently. Each call uses its own connection while its transaction is open.
class Inbox {
 public:
  /// The effect that must happen once. It may reply, publish, and use the transaction. It must not commit the
  /// transaction.
  /// If a deadlock or a lost connection ends the transaction, the effect is called again in a new one. Side effects
  /// outside the transaction can therefore happen twice.
  using Effect = std::function<void(Context&)>;

  /// `store` must not be null.
  explicit Inbox(std::shared_ptr<ports::Store> store) : store_(std::move(store)) {}

  /// Runs the effect in a new transaction together with the id, unless the id is known. If the effect throws, the
  /// exception passes through and nothing is stored.
  /// Throws StoreUnavailable (the result is unknown; call again with the same id), SqlError, and ResponseTooLarge.
  /// Throws Error if the id or the handler's name is empty; the other functions that take an id do the same.
  /// Throws Error if a topic in mode leased uses the handler: once() and record() do not see what runs there, and look for
  /// its claims at the first call with a handler, and every 30 s.
  Once once(std::string_view handler, std::string_view id, const Effect& effect, const OnceOptions& options = {});
  /// Runs the effect within the caller's transaction: a handler's ctx.tx(), or postgres::borrow() of a libpqxx
  /// transaction. The caller commits it, and must roll it back after an exception.
  /// The call waits until a concurrent transaction with the same id ends. Throws StoreBusy if that takes longer than
  /// the transaction's lock_timeout.
  Once once(Transaction& transaction, std::string_view handler, std::string_view id, const Effect& effect,
            const OnceOptions& options = {});

  /// The record of the id; absent if the id has not taken effect yet. The call takes no lock. To act on the result, use
  /// once(). With synchronous replication, both wait until the replicas have the record.
  std::optional<Recorded> check(std::string_view handler, std::string_view id);
  /// Records that the id has taken effect, with its response. Returns true if the id was new. Otherwise nothing
  /// changes.
  bool record(std::string_view handler, std::string_view id, std::optional<std::string_view> response = {});
  /// Records the id together with the caller's own statements. If it returns false, the id was recorded earlier.
  bool record(Transaction& transaction, std::string_view handler, std::string_view id,
              std::optional<std::string_view> response = {});

  /// Declares how long the handler's ids are needed. A repeat that comes later runs again. Declare it at start and
  /// every day: it stays in effect for the declared duration. Consumers of the same schema delete older ids, and so
  /// does `turnstile inbox purge`.
  KeptIds keep_ids(std::string_view handler, std::chrono::seconds keep_for);

 private:
  HandlerId id_of(std::string_view handler);
  HandlerId id_without_claims(std::string_view handler);

  std::shared_ptr<ports::Store> store_;
  std::shared_mutex mutex_;
  std::map<std::string, HandlerId, std::less<>> handlers_;
  std::map<HandlerId, std::chrono::steady_clock::time_point> looked_for_claims_;  ///< when, without finding any
};

}  // namespace turnstile
