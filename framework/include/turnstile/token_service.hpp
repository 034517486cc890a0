#pragma once
// Permits for whoever calls, without any Kafka handler: ask for a token, run, give it back. Over the limiters of a token domain
// (turnstile/tokens.hpp) the limit holds over all processes of the domain; over make_local_limiters() within this one.
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
#include <string>
#include <variant>
#include <vector>

#include "turnstile/ports/limiter.hpp"

namespace turnstile {

/// Names a token in all processes of a domain.
struct TokenId {
  std::uint64_t service = 0;  ///< the TokenService that gave it out
  std::uint64_t number = 0;   ///< 1 and up
  auto operator<=>(const TokenId&) const = default;
};
/// "9f86d081884c7d65-17", and back; nothing when it is no such text.
std::string to_text(const TokenId& id);
std::optional<TokenId> parse_token_id(std::string_view text);

struct Granted {
  TokenId token;
  std::stop_token lost;  ///< set when its time is over, or the permit under it is not ours any more: stop what runs
};
struct Refused {
  enum class Why : std::uint8_t {
    unknown_limiter,  ///< limit() was not called for it
    bad_count,        ///< below 1, or more than the limit, so that it would wait for ever
    queue_full,       ///< as many wait as may
    stopped,          ///< the service ends
    no_more_starts,   ///< the domain's log cannot be trusted; the text says what to do
  };
  Why why;
  std::string text;
};
struct TimedOut {};
using TokenAnswer = std::variant<Granted, Refused, TimedOut>;

enum class ReleaseAnswer : std::uint8_t {
  released,
  too_late,  ///< released, but it was lost before: what ran under it may have run beside others
  already,   ///< released before, or taken back when its time was over
  foreign,   ///< given out by another service
  unknown,   ///< never given out
};
enum class KeepAnswer : std::uint8_t { kept, lost, already, foreign, unknown };
std::string_view to_text(ReleaseAnswer answer);
std::string_view to_text(KeepAnswer answer);

/// What happens to a token that is held for longer than hold_timeout without keep().
enum class OnHold : std::uint8_t {
  cancel,   ///< its `lost` is set; the permit comes back with release(), or at the hard bound
  keep,     ///< nothing, but it is counted; taken back at the hard bound
  release,  ///< its `lost` is set, and the permit taken back at once
};

/// Decides when tokens whose time is over are looked for. `run(most, longest)` handles at most so many, for at most so long, and
/// returns how many are left that are due. The default is PeriodicExpiry. start() and stop() are called once each; run() may be
/// called from any thread between them.
class ExpiryStrategy {
 public:
  using Run = std::function<std::size_t(std::size_t most, std::chrono::microseconds longest)>;
  virtual ~ExpiryStrategy() = default;
  virtual void start(Run run) = 0;
  virtual void stop() = 0;
};
struct PeriodicExpiry {
  std::chrono::milliseconds every{100};
  std::size_t most_a_run = 1'000;
  std::chrono::microseconds longest_run{5'000};
};
std::unique_ptr<ExpiryStrategy> make_expiry(const PeriodicExpiry& settings);

struct TokenServiceSettings {
  std::size_t most_waiting = 10'000;          ///< requests; more are refused
  std::chrono::milliseconds hold_timeout{0};  ///< 0: a token may be held for as long as its holder lives
  OnHold on_hold = OnHold::cancel;
  std::uint32_t hard_bound = 3;  ///< times hold_timeout: then it is taken back, whatever on_hold says
  PeriodicExpiry expiry{};
};

/// A token that is out, for people to look at.
struct TokenView {
  TokenId token;
  std::string limiter;
  std::int64_t count = 1;
  std::chrono::milliseconds held_for{0};
  bool lost = false;
};

/// Thread-safe.
class TokenService {
 public:
  explicit TokenService(std::shared_ptr<Limiters> limiters, TokenServiceSettings settings = {},
                        std::unique_ptr<ExpiryStrategy> expiry = nullptr);
  /// Wakes those who wait (Refused::stopped). Tokens that are still out are given back.
  ~TokenService();
  TokenService(const TokenService&) = delete;
  TokenService& operator=(const TokenService&) = delete;

  /// Makes a limiter known. Throws Error when it is known with another limit.
  void limit(const std::string& limiter, std::int64_t limit);

  /// `count` tokens' worth, as one token. Waits at most `timeout` (0: does not wait).
  TokenAnswer request(std::string_view limiter, std::int64_t count, Priority priority,
                      std::chrono::milliseconds timeout);
  ReleaseAnswer release(const TokenId& token);
  /// Still in use: its hold_timeout starts again.
  KeepAnswer keep(const TokenId& token);

  /// The same as an object; empty when it was refused or timed out. Not subject to hold_timeout.
  Permit acquire(std::string_view limiter, std::chrono::milliseconds timeout);

  /// The longest held first, at most so many.
  [[nodiscard]] std::vector<TokenView> outstanding(std::size_t most = 1'000) const;
  /// Requests that wait.
  [[nodiscard]] std::size_t waiting() const;
  struct Counts {
    std::uint64_t granted = 0, refused = 0, timed_out = 0, held_too_long = 0, taken_back = 0;
  };
  [[nodiscard]] Counts counts() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace turnstile
