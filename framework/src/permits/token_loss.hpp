#pragma once
// How the holder of a token with a hold_timeout learns that it must stop.

#include <atomic>
#include <cstdint>
#include <memory>
#include <stop_token>

namespace turnstile::detail {

/// The `lost` of a token with a hold_timeout. It is set when the hold time is over, and when the permit is lost. The
/// permit's own stop_token cannot be used, because all permits that are lost together share it.
class TokenLoss {
 public:
  /// Does not wait for running callbacks of `lost`: their thread may wait for the thread that releases the token.
  struct LetGo {
    void operator()(TokenLoss* loss) const {
      if (loss->stage_.exchange(Stage::let_go) != Stage::telling) delete loss;
    }
  };
  using Ptr = std::unique_ptr<TokenLoss, LetGo>;

  static Ptr of(const std::stop_token& permit) { return Ptr(new TokenLoss(permit)); }
  /// Set it without a lock: it runs the callbacks of `lost`.
  [[nodiscard]] const std::stop_source& source() const { return source_; }

 private:
  enum class Stage : std::uint8_t {
    waiting,
    telling,  ///< the permit is lost; callbacks may run
    told,
    let_go,
  };
  struct Tell {
    TokenLoss* loss;
    void operator()() const noexcept { loss->tell(); }
  };

  explicit TokenLoss(const std::stop_token& permit) : permit_lost_(permit, Tell{this}) {}

  void tell() {
    Stage was = Stage::waiting;
    if (!stage_.compare_exchange_strong(was, Stage::telling)) return;
    source_.request_stop();
    was = Stage::telling;
    // A stop_callback may destroy itself. On any other thread its destructor waits for it.
    if (!stage_.compare_exchange_strong(was, Stage::told)) delete this;
  }

  std::stop_source source_;
  std::atomic<Stage> stage_{Stage::waiting};
  const std::stop_callback<Tell> permit_lost_;  ///< last, because its constructor may call tell() at once
};

}  // namespace turnstile::detail
