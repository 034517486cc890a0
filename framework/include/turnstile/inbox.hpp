#pragma once
// The inbox without Kafka: for an HTTP service, a cron job, a loop of one's own. What runs under an id takes effect once, in whichever
// process, and whoever asks again gets the answer of the one that ran.
//
//   turnstile::Inbox inbox{turnstile::postgres::open_store({.url = turnstile::Secret("postgresql://localhost/app")})};
//   const auto charged = inbox.once("charge", request_id, [&](turnstile::Context& ctx) {
//     ctx.tx().exec("UPDATE account SET cents = cents - $1 WHERE name = $2", cents, name);
//     ctx.reply("receipt 17");
//   });
//   send(charged.response.value_or(""));   // "receipt 17", for every caller with this id
//
// The name of the handler is the scope of its ids: two handlers may each see the same id once. The schema is the one that `turnstile
// migrate up` makes. The ids are kept until keep_ids() says otherwise.
//
// In a test, Inbox{std::make_shared<turnstile::testing::MemoryInbox>()} does without a database.

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
#include "turnstile/ports/inbox.hpp"

namespace turnstile {

/// How once() ended.
struct Once {
  /// What became of the call.
  enum class Kind : std::uint8_t {
    ran,       ///< by this call
    repeated,  ///< it has taken effect before, or a rival was faster: nothing was done, `response` is that one's
    mismatch,  ///< as repeated, but with another body: nothing was done, and there is no response
    running,   ///< a rival was still at it when `wait` was over: nothing was done, ask again
  };
  Kind kind = Kind::ran;                ///< what became of the call
  std::optional<std::string> response;  ///< what was replied, bit for bit; nothing when it did not reply
};

/// How once() waits, compares and bounds.
struct OnceOptions {
  /// What came with the id: the same id with another body is a mismatch. A hash of it is kept. Absent: not compared.
  std::optional<std::string_view> body{};
  /// How long a rival with the same id is waited for, from 50 ms. In somebody's own transaction its lock_timeout decides instead.
  std::chrono::milliseconds wait{5'000};
  /// The server ends the transaction when the effect falls silent in it for so long.
  std::chrono::milliseconds idle_timeout{30'000};
  std::size_t max_response = 64 * 1024;  ///< bytes
};

/// Thread-safe: calls run side by side, each on a connection of its own while its transaction is open.
class Inbox {
 public:
  /// What is to happen once. It may reply, publish, and use the transaction; not commit it. When the transaction is lost to a deadlock
  /// or a lost connection, it is called again in a new one: what it does outside of the transaction may then happen again.
  using Effect = std::function<void(Context&)>;

  /// `store`: not null.
  explicit Inbox(std::shared_ptr<InboxStore> store) : store_(std::move(store)) {}

  /// Runs the effect in a transaction of its own, with the id, unless the id is known. What the effect throws passes through, and leaves
  /// nothing. Throws StoreUnavailable (nothing is known; ask again with the same id), SqlError, ResponseTooLarge; Error, like all that
  /// take an id, where the id or the handler's name is empty.
  Once once(std::string_view handler, std::string_view id, const Effect& effect, const OnceOptions& options = {});
  /// The same within the caller's transaction (a handler's ctx.tx(), or postgres::borrow() of one of libpqxx), which also commits it.
  /// After an exception it must be rolled back. A rival is waited for until its transaction ends: StoreBusy when that was too long.
  Once once(Transaction& transaction, std::string_view handler, std::string_view id, const Effect& effect,
            const OnceOptions& options = {});

  /// What is kept of the id; nothing when it has not taken effect yet. A look, not a lock: to act on the answer, use once().
  std::optional<Recorded> check(std::string_view handler, std::string_view id);
  /// Says that the id has taken effect, with its response. True when nobody had said so before; else nothing is changed.
  bool record(std::string_view handler, std::string_view id, std::optional<std::string_view> response = {});
  /// Together with the caller's own statements: when it says false, they have been done before.
  bool record(Transaction& transaction, std::string_view handler, std::string_view id,
              std::optional<std::string_view> response = {});

  /// For how long the handler's ids are needed: a repeat that comes later runs again. Say it at start and every day; it holds for as
  /// long as it says. Consumers of the same schema delete what is older, or `turnstile inbox purge`.
  KeptIds keep_ids(std::string_view handler, std::chrono::seconds keep_for);

 private:
  HandlerId id_of(std::string_view handler);

  std::shared_ptr<InboxStore> store_;
  std::shared_mutex mutex_;
  std::map<std::string, HandlerId, std::less<>> handlers_;
};

}  // namespace turnstile
