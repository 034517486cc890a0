#pragma once
// Permits for any caller, without a Kafka handler: request a token, run, release the token.
// With the limiters of a token domain (turnstile/tokens.hpp) or of PostgreSQL (turnstile/postgres/limiters.hpp) the
// limit applies to all processes. With make_local_limiters() it applies to this process. The limiters of PostgreSQL
// grant one permit at a time, and ignore the priority. examples/limited_calls is a complete program.
//
//   TokenService tokens{domain};
//   tokens.limit("psp", 64);
//   if (auto answer = tokens.request("psp", 1, Priority::normal, 2s); auto* granted = std::get_if<Granted>(&answer)) {
//     call(granted->lost);            // a stop_token: set when the token is not ours any more
//     tokens.release(granted->token);
//   }
//
// Or as an object that releases itself: `Permit permit = tokens.acquire("psp", 2s)`.

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

/// Identifies a token in all processes of a domain.
struct TokenId {
  std::uint64_t service = 0;  ///< the TokenService that granted it
  std::uint64_t number = 0;   ///< from 1
  /// Compares all members.
  auto operator<=>(const TokenId&) const = default;
};
/// "9f86d081884c7d65-17": the service in hexadecimal, and the number.
std::string to_text(const TokenId& id);
/// Reads such a text. Absent: the text is no token id.
std::optional<TokenId> parse_token_id(std::string_view text);

/// A token. Release it once, on any thread. If you forget to release it, the service takes it back at its hard bound.
/// Without a hold_timeout it is held for the life of the service.
struct Granted {
  TokenId token;  ///< its id
  /// Set when the hold time of the token is over, or its permit is lost: stop the work. A thread of the service or of
  /// the limiter sets it, so callbacks must not block.
  std::stop_token lost;
};
/// Why a request was refused.
struct Refused {
  /// The reasons.
  enum class Why : std::uint8_t {
    unknown_limiter,  ///< limit() was not called for it
    bad_count,        ///< below 1, above the limit, or above 1 where permits are granted one at a time
    queue_full,       ///< TokenServiceSettings::most_waiting requests wait already
    stopped,          ///< the service is being destroyed
    cancelled,        ///< the caller's stop_token was set
    no_more_starts,   ///< the limiters are halted (for example, the token log was deleted); the text tells what to do
  };
  Why why;           ///< the reason
  std::string text;  ///< for people: which limiter, and what to do
};
/// The timeout expired. The request is withdrawn; nothing was acquired.
struct TimedOut {};
/// The result of a request.
using TokenAnswer = std::variant<Granted, Refused, TimedOut>;

/// The result of release().
enum class ReleaseAnswer : std::uint8_t {
  released,
  too_late,  ///< released, but the permit was lost before: other work may have run at the same time
  already,   ///< it was released before
  /// The service took it back when its hold time was over. Remembered for the last 64,000 of these tokens; after that
  /// the result is `already`.
  expired,
  foreign,  ///< another service granted it
  unknown,  ///< it was never granted
};
/// The result of keep(); see ReleaseAnswer. `lost` means: the token's `lost` is set, so stop the work and release the
/// token.
enum class KeepAnswer : std::uint8_t { kept, lost, already, expired, foreign, unknown };
/// "released", "too late", …
std::string_view to_text(ReleaseAnswer answer);
/// "kept", "lost", …
std::string_view to_text(KeepAnswer answer);

/// What happens to a token that is held for longer than hold_timeout without a call of keep().
enum class OnHold : std::uint8_t {
  cancel,   ///< its `lost` is set; the permit returns with release(), or at the hard bound
  keep,     ///< it is counted, but stays granted until the hard bound
  release,  ///< its `lost` is set, and the permit is taken back at once
};

/// Decides when the service looks for tokens whose hold time is over. The default is PeriodicExpiry.
/// `run(most, longest)` handles up to `most` tokens in up to `longest`, and returns the number of remaining tokens that
/// are due. It does not throw. Any thread may call it between start() and stop(). It must not be called after stop()
/// has returned.
/// The service calls start() and stop() once each, and only if there is a hold_timeout.
class ExpiryStrategy {
 public:
  /// Looks for tokens whose hold time is over.
  using Run = std::function<std::size_t(std::size_t most, std::chrono::microseconds longest)>;
  virtual ~ExpiryStrategy() = default;
  /// Starts to call `run`.
  virtual void start(Run run) = 0;
  /// Ends the calls: `run` is not called after it returns.
  virtual void stop() = 0;
};
/// Looks for such tokens at fixed intervals, on its own thread.
struct PeriodicExpiry {
  std::chrono::milliseconds every{100};          ///< between two runs
  std::size_t most_a_run = 1'000;                ///< tokens in one run
  std::chrono::microseconds longest_run{5'000};  ///< time of one run
};
/// The default strategy: a thread that looks at fixed intervals.
std::unique_ptr<ExpiryStrategy> make_expiry(const PeriodicExpiry& settings);

/// How tokens are granted and taken back.
struct TokenServiceSettings {
  std::size_t most_waiting = 10'000;  ///< requests that may wait; further ones are refused
  /// How long a token may be held, counted from request() or its last keep(). 0: for as long as its holder lives. The
  /// next run of `expiry` notices the end.
  std::chrono::milliseconds hold_timeout{0};
  OnHold on_hold = OnHold::cancel;  ///< what happens at hold_timeout
  std::uint32_t hard_bound = 3;     ///< in multiples of hold_timeout; then it is taken back in any case
  PeriodicExpiry expiry{};          ///< when the service looks for tokens whose hold time is over
};

/// A granted token, for people.
struct TokenView {
  TokenId token;                          ///< its id
  std::string limiter;                    ///< the limiter's name
  std::int64_t count = 1;                 ///< permits of this token
  std::chrono::milliseconds held_for{0};  ///< since it was granted
  bool lost = false;                      ///< whether its `lost` is set
};

/// Grants and takes back tokens. Thread-safe. It keeps the limiters alive. Several services can use the same limiters,
/// and share their limits.
class TokenService {
 public:
  /// `limiters` must not be null. If `expiry` is null, settings.expiry configures it. It is not used without a
  /// hold_timeout.
  explicit TokenService(std::shared_ptr<ports::Limiters> limiters, TokenServiceSettings settings = {},
                        std::unique_ptr<ExpiryStrategy> expiry = nullptr);
  /// Wakes the callers that wait (Refused::stopped), and waits until they have returned. Tokens that are still granted
  /// are released, and their `lost` is not set. Permits of acquire() stay valid. No call may begin after this point.
  ~TokenService();
  TokenService(const TokenService&) = delete;
  TokenService& operator=(const TokenService&) = delete;

  /// Declares a limiter. Call it before the first request() for the limiter. Over a cluster this is the value that the
  /// program is configured with. The lowest value of all programs is in effect, unless an operator has set a limit.
  /// A second call with the same limit changes nothing. Throws what Limiters::open() throws, for example Error if the
  /// limiter is known with another limit.
  void limit(const std::string& limiter, std::int64_t limit);

  /// Requests `count` permits as one token. Waits up to `timeout`, or until `stop` is set. 0 does not wait, and
  /// milliseconds::max() waits without end.
  /// Waiting requests are served in the order of their arrival, urgent requests first. They take turns with the
  /// handlers of a consumer in this process with the same limit. Between processes the division is fair by process, not
  /// by request. If the limiters halt, waiting requests are refused within a second (no_more_starts).
  ///
  /// Over Kafka, a process without permits can get none without waiting. A request with a timeout of 0 that fails asks
  /// the other processes for permits. A request within the next half second finds them.
  TokenAnswer request(std::string_view limiter, std::int64_t count, Priority priority,
                      std::chrono::milliseconds timeout, std::stop_token stop = {});
  /// Releases a token, without waiting for the network. It may wake waiting callers on this thread.
  ReleaseAnswer release(const TokenId& token);
  /// Declares that the token is still in use: its hold_timeout starts again.
  KeepAnswer keep(const TokenId& token);

  /// A permit as an object that releases itself. Empty if request() would be refused or time out. It is not subject to
  /// hold_timeout, and appears neither in outstanding() nor in counts(). It may outlive the service.
  Permit acquire(std::string_view limiter, std::chrono::milliseconds timeout, std::stop_token stop = {});

  /// Up to `most` granted tokens, those held longest first.
  [[nodiscard]] std::vector<TokenView> outstanding(std::size_t most = 1'000) const;
  /// The number of waiting requests.
  [[nodiscard]] std::size_t waiting() const;
  /// Counts since the service was created.
  struct Counts {
    std::uint64_t granted = 0,        ///< requests with the result Granted
        refused = 0,                  ///< requests with the result Refused
        timed_out = 0;                ///< requests with the result TimedOut
    std::uint64_t held_too_long = 0;  ///< tokens whose hold_timeout has passed
    std::uint64_t taken_back = 0;     ///< of these, those that the service took back
  };
  /// The counts at the time of the call.
  [[nodiscard]] Counts counts() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace turnstile
