#pragma once
// Which dead letters `dlq replay --all` publishes, which it leaves out, and how fast it goes. Pure.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace turnstile::cli {

/// What `dlq replay --all` does with a dead letter.
enum class ReplayPart : std::uint8_t {
  published,
  in_doubt,    ///< an earlier replay of it has not ended
  has_run,     ///< its message has taken effect
  dies_again,  ///< unless something else has changed
  dropped,     ///< an operator has dropped it
  undecided,   ///< it may have taken effect, or was forged
};

/// What decides about a dead letter.
struct ReplayCase {
  std::string_view reason{};
  bool is_in_doubt = false;   ///< an earlier replay of it has not ended
  bool is_edited = false;     ///< an operator has changed its record
  bool is_asked_for = false;  ///< --reason names its reason
};
ReplayPart replay_part(const ReplayCase& letter);

/// Why it is left out, and what to do: "unknown, so an operator has to decide; to replay …".
std::string why_left_out(ReplayPart part, const std::string& reason);

/// The time from one dead letter to the next at this rate: "100/s", "30/m", "5/h". Absent: it is no rate.
std::optional<std::chrono::nanoseconds> parse_rate(std::string_view text);

/// When each dead letter may be published: evenly, and without a burst after a delay.
class Pace {
 public:
  using Clock = std::chrono::steady_clock;

  /// Absent: as fast as possible.
  explicit Pace(std::optional<std::chrono::nanoseconds> interval) : interval_(interval) {}
  /// When the next one may be published.
  Clock::time_point next(Clock::time_point now);

 private:
  std::optional<std::chrono::nanoseconds> interval_;
  Clock::time_point due_{};
};

}  // namespace turnstile::cli
