#pragma once
// Permits for whoever calls, without any Kafka handler: ask for a token, run, give it back. Over the limiters of a token domain
// (turnstile/tokens.hpp) or of PostgreSQL (turnstile/postgres/limiters.hpp) the limit holds over all processes; over
// make_local_limiters() within this one. PostgreSQL's give one at a time, and know no priority. examples/limited_calls is a whole
// program.
//
//   TokenService tokens{domain};
//   tokens.limit("psp", 64);
//   if (auto answer = tokens.request("psp", 1, Priority::normal, 2s); auto* granted = std::get_if<Granted>(&answer)) {
//     call(granted->lost);            // a stop_token: set when the token is not ours any more
//     tokens.release(granted->token);
//   }
//
// or, where an object may stand for it: `Permit permit = tokens.acquire("psp", 2s)`, which gives itself back.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <variant>
#include <vector>

#include "turnstile/ports/limiter.hpp"

namespace turnstile {

/// Names a token in all processes of a domain.
struct TokenId {
  std::uint64_t service = 0;  ///< the TokenService that gave it out
  std::uint64_t number = 0;   ///< 1 and up
  /// Member by member.
  auto operator<=>(const TokenId&) const = default;
};
/// "9f86d081884c7d65-17" (the service in hexadecimal, the number), and back; nothing when it is no such text.
std::string to_text(const TokenId& id);
/// Reads such a text.
std::optional<TokenId> parse_token_id(std::string_view text);

/// To be released once, by whoever got it, on any thread. A token that is forgotten is held until its hard bound, or, without a
/// hold_timeout, for as long as the service lives.
struct Granted {
  TokenId token;  ///< its name
  /// Set when its time is over, or the permit under it is not ours any more: stop what runs. By a thread of the service or of
  /// the limiter, which callbacks of it must not hold up.
  std::stop_token lost;
};
/// Why a request was not granted.
struct Refused {
  /// The reasons.
  enum class Why : std::uint8_t {
    unknown_limiter,  ///< limit() was not called for it
    bad_count,       ///< below 1; above the limit, so that it would wait for ever; above 1 where one is given at a time
    queue_full,      ///< as many wait as may (TokenServiceSettings::most_waiting)
    stopped,         ///< the service ends
    cancelled,       ///< the caller's stop_token was set
    no_more_starts,  ///< Limiters::health() is halted: the token log was deleted, say; the text says what to do
  };
  Why why;           ///< the reason
  std::string text;  ///< for people: which limiter, and what to do
};
/// It was not to be had in time. It is not waited for any more, and nothing was taken.
struct TimedOut {};
/// The answer to a request.
using TokenAnswer = std::variant<Granted, Refused, TimedOut>;

/// What release() did.
enum class ReleaseAnswer : std::uint8_t {
  released,
  too_late,  ///< released, but it was lost before: what ran under it may have run beside others
  already,   ///< released before
  expired,  ///< taken back before, when its time was over. Remembered for the last 64,000 tokens taken back, else `already`
  foreign,  ///< given out by another service
  unknown,  ///< never given out
};
/// As above; `lost`: its `lost` is set, so stop what runs, and release it.
enum class KeepAnswer : std::uint8_t { kept, lost, already, expired, foreign, unknown };
/// "released", "too late", …
std::string_view to_text(ReleaseAnswer answer);
/// "kept", "lost", …
std::string_view to_text(KeepAnswer answer);

/// What happens to a token that is held for longer than hold_timeout without keep().
enum class OnHold : std::uint8_t {
  cancel,   ///< its `lost` is set; the permit comes back with release(), or at the hard bound
  keep,     ///< nothing, but it is counted; taken back at the hard bound
  release,  ///< its `lost` is set, and the permit taken back at once
};

/// Decides when tokens whose time is over are looked for. `run(most, longest)` handles at most so many, for at most so long, and
/// returns how many are left that are due. The default is PeriodicExpiry. start() and stop() are called once each, and only where
/// there is a hold_timeout; run() may be called from any thread between them, must not be after stop() has returned, and does not
/// throw.
class ExpiryStrategy {
 public:
  /// Looks for tokens whose time is over.
  using Run = std::function<std::size_t(std::size_t most, std::chrono::microseconds longest)>;
  virtual ~ExpiryStrategy() = default;
  /// Begins to call `run`.
  virtual void start(Run run) = 0;
  /// Ends; `run` is not called after it returns.
  virtual void stop() = 0;
};
/// On a thread of its own.
struct PeriodicExpiry {
  std::chrono::milliseconds every{100};          ///< between two runs
  std::size_t most_a_run = 1'000;                ///< tokens in one run
  std::chrono::microseconds longest_run{5'000};  ///< time of one run
};
/// The default strategy: a thread of its own that looks at fixed intervals.
std::unique_ptr<ExpiryStrategy> make_expiry(const PeriodicExpiry& settings);

/// How tokens are given out and taken back.
struct TokenServiceSettings {
  std::size_t most_waiting = 10'000;  ///< requests; more are refused
  /// How long a token may be held, from request() or its last keep(); 0: for as long as its holder lives. Noticed with the next
  /// run of `expiry`.
  std::chrono::milliseconds hold_timeout{0};
  OnHold on_hold = OnHold::cancel;  ///< what happens at hold_timeout
  std::uint32_t hard_bound = 3;     ///< times hold_timeout, counted alike: then it is taken back, whatever on_hold says
  PeriodicExpiry expiry{};          ///< when tokens whose time is over are looked for
};

/// A token that is out, for people to look at.
struct TokenView {
  TokenId token;                          ///< its name
  std::string limiter;                    ///< the limiter's name
  std::int64_t count = 1;                 ///< permits that it stands for
  std::chrono::milliseconds held_for{0};  ///< since it was given out
  bool lost = false;                      ///< whether its `lost` is set
};

/// Thread-safe. It keeps the limiters; several services may stand over the same ones, and share their limits.
class TokenService {
 public:
  /// `limiters`: not null. `expiry` null: as settings.expiry says; not used without a hold_timeout.
  explicit TokenService(std::shared_ptr<Limiters> limiters, TokenServiceSettings settings = {},
                        std::unique_ptr<ExpiryStrategy> expiry = nullptr);
  /// Wakes those who wait (Refused::stopped), and waits until they have left. Tokens that are still out are given back, without
  /// setting their `lost`; those of acquire() live on by themselves. No call may begin from here on.
  ~TokenService();
  TokenService(const TokenService&) = delete;
  TokenService& operator=(const TokenService&) = delete;

  /// Makes a limiter known; before the first request() for it. Over a cluster this is what the program is configured with: of
  /// several programs' limits the lowest holds, unless an operator has set one. A second call with the same limit changes nothing.
  /// Throws as Limiters::open() does: Error when the limiter is known with another limit, for one.
  void limit(const std::string& limiter, std::int64_t limit);

  /// `count` permits, as one token. Waits up to `timeout`, or until `stop` is set; 0 does not wait, milliseconds::max() waits
  /// without end. Those who wait are served in the order in which they came, urgent ones first; in turn with the handlers of a
  /// consumer in this process that has the same limit; and over all processes fairly by process, not by request. When the limiters
  /// halt, those who wait are refused within a second (no_more_starts).
  ///
  /// Over Kafka, a process that has no permits yet cannot be granted any without waiting. A request with a timeout of 0 that fails
  /// asks the other processes for permits, and one within the next half second finds them.
  TokenAnswer request(std::string_view limiter, std::int64_t count, Priority priority,
                      std::chrono::milliseconds timeout, std::stop_token stop = {});
  /// Does not wait for the network. May wake others, on this thread.
  ReleaseAnswer release(const TokenId& token);
  /// Still in use: its hold_timeout starts again.
  KeepAnswer keep(const TokenId& token);

  /// One permit as an object, which gives itself back; empty when request() would refuse or time out. Not subject to
  /// hold_timeout, and neither in outstanding() nor in counts(). It may outlive the service.
  Permit acquire(std::string_view limiter, std::chrono::milliseconds timeout, std::stop_token stop = {});

  /// Tokens that are out, the longest held first, at most so many.
  [[nodiscard]] std::vector<TokenView> outstanding(std::size_t most = 1'000) const;
  /// Requests that wait.
  [[nodiscard]] std::size_t waiting() const;
  /// Since the service began.
  struct Counts {
    std::uint64_t granted = 0,        ///< answers of request(): Granted
        refused = 0,                  ///< answers of request(): Refused
        timed_out = 0;                ///< answers of request(): TimedOut
    std::uint64_t held_too_long = 0;  ///< tokens whose hold_timeout has passed
    std::uint64_t taken_back = 0;     ///< of these, not released by their holder
  };
  /// How often each has happened.
  [[nodiscard]] Counts counts() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace turnstile
