#include "follower.hpp"

#include <chrono>
#include <exception>

#include "turnstile/error.hpp"

namespace turnstile::cli::dashboard {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLook{200};
constexpr milliseconds kAgain{3'000};
/// Limits change seldom, so they are noted once for this time of the log.
constexpr std::int64_t kLimitsEveryMs = 500;

}  // namespace

Follower::Follower(Open open) : open_(std::move(open)), thread_([this] { run(); }) {}

Follower::~Follower() {
  stop(milliseconds{0});
  thread_.join();
}

bool Follower::stop(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  changed_.notify_all();
  return changed_.wait_for(lock, timeout, [this] { return ended_; });
}

void Follower::rest(milliseconds time) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, time, [this] { return stopping_.load(); });
}

void Follower::tell(const std::string& why) {
  const std::lock_guard lock(mutex_);
  state_.why = why;
}

void Follower::run() {
  while (!stopping_) {
    try {
      const auto reader = open_();
      if (reader) follow(*reader);
      else tell("there is no token log yet: the first consumer with a limit over the cluster creates it");
    } catch (const TokenLogBroken&) {
      tell("records were deleted while they were read; it begins again");
      rest(kLook);
      continue;
    } catch (const std::exception& error) {
      tell(error.what());
    }
    rest(kAgain);
  }
  const std::lock_guard lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void Follower::note(TokenReader& reader) {
  reader.refresh();
  const PermitsView view = reader.permits();
  history_.note_limits(view);
  state_.changes = view.limit_changes;
}

void Follower::follow(TokenReader& reader) {
  reader.start(reader.begin());
  if (!reader.known_from())
    throw Error(
        Code::token_log_damaged,
        "which members hold permits is unknown: the log was cut off, and no snapshot that continues in it is left");
  const auto first = reader.begin() < reader.end() ? reader.peek(milliseconds{10'000}) : std::nullopt;
  {
    const std::lock_guard lock(mutex_);
    if (reader.end() <= history_.position()) history_ = History();  // another log of this name
    state_.log = reader.name();
    if (reader.position() >= *reader.known_from() && first) history_.set(reader.permits_of_part(), first->time_ms);
  }
  bool based = reader.position() >= *reader.known_from();
  std::int64_t noted_ms = 0;
  while (!stopping_) {
    const auto next = reader.peek(kLook);
    const std::lock_guard lock(mutex_);
    if (next) {
      const TokenRecord record = reader.next();
      if (record.position <= history_.position() && based) continue;
      if (!based && record.position >= *reader.known_from()) {
        history_.set(reader.permits_of_part(), record.time_ms);
        based = true;
      }
      history_.add(record);
      if (based && (record.kind.starts_with("limit") || record.time_ms >= noted_ms + kLimitsEveryMs)) {
        note(reader);
        noted_ms = record.time_ms;
      }
      continue;
    }
    if (!based) continue;
    if (history_.position() < 0 && reader.position() >= 0)
      history_.set(reader.permits_of_part(), reader.time_of(reader.position()));
    note(reader);
    state_.ready = true;
    state_.why = reader.parts() == 1 ? std::string()
                                     : "the token log is divided, and only the time before is shown. Later times: "
                                       "turnstile log replay --at TIME --limiter NAME";
  }
}

Follower::State Follower::state() const {
  const std::lock_guard lock(mutex_);
  State state = state_;
  state.position = history_.position();
  state.limiters = history_.limiters();
  state.first_ms = history_.first_ms();
  state.last_ms = history_.last_ms();
  return state;
}

HistoryView Follower::view(const std::string& limiter, std::int64_t from_ms, std::int64_t to_ms,
                           std::size_t steps) const {
  const std::lock_guard lock(mutex_);
  return history_.view(limiter, from_ms, to_ms, steps);
}

}  // namespace turnstile::cli::dashboard
