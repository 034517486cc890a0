#include "turnstile/token_reader.hpp"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <utility>

#include "config/suggest.hpp"
#include "permits/permits_view.hpp"
#include "support/deadline.hpp"
#include "tokens/apply.hpp"
#include "tokens/describe.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tokens::Count;

/// How long it waits for records that the log must have.
constexpr milliseconds kPatience{10'000};
constexpr milliseconds kLook{100};
constexpr std::size_t kTimesKept = 1'000'000;
/// The search ends after this number of snapshots from before the log's beginning; all earlier ones are older still.
/// Two members write snapshots, one after another.
constexpr int kOldSnapshots = 4;

/// Events of a program that is no member need a unique id, so that the program recognizes them when it reads them.
tokens::MemberId random_id() {
  std::random_device random;
  return (tokens::MemberId{random()} << 32 | random()) | 1;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

TokenMember member_of(tokens::MemberId id, const tokens::Joined& about) {
  return {.id = id, .client = about.client, .host = about.host, .pid = about.pid};
}

/// The held permits by limiter and member, without zeros.
using Held = std::map<std::pair<std::string, tokens::MemberId>, Count>;

/// The limiters that an event names. Absent: it may concern any limiter.
std::optional<std::set<std::string>> named_by(const tokens::Event& event) {
  std::set<std::string> names;
  if (const auto* keep = std::get_if<tokens::Keep>(&event.body)) {
    for (const auto& line : keep->lines) names.insert(line.limiter);
  } else if (const auto* acquire = std::get_if<tokens::Acquire>(&event.body)) {
    names.insert(acquire->line.limiter);
  } else if (const auto* release = std::get_if<tokens::Release>(&event.body)) {
    names.insert(release->line.limiter);
  } else if (const auto* set = std::get_if<tokens::LimitSet>(&event.body)) {
    names.insert(set->limiter);
  } else {
    return std::nullopt;
  }
  return names;
}

Held held_in(const tokens::State& state, const std::optional<std::set<std::string>>& names) {
  Held held;
  for (const auto& [name, limiter] : state.limiters) {
    if (names && !names->contains(name)) continue;
    for (const auto& [id, holding] : limiter.holdings) {
      if (holding.held() > 0) held[{name, id}] = holding.held();
    }
  }
  return held;
}

/// The members before and after an event.
class Names {
 public:
  void learn(const tokens::State& state, tokens::MemberId id) {
    const auto found = state.members.find(id);
    if (found != state.members.end()) known_[id] = member_of(id, found->second.about);
  }
  [[nodiscard]] TokenMember of(tokens::MemberId id) const {
    const auto found = known_.find(id);
    return found == known_.end() ? TokenMember{.id = id, .client = {}, .host = {}} : found->second;
  }
  [[nodiscard]] std::vector<TokenMember> of(const std::vector<tokens::MemberId>& ids) const {
    std::vector<TokenMember> all;
    for (const auto id : ids) all.push_back(of(id));
    return all;
  }

 private:
  std::map<tokens::MemberId, TokenMember> known_;
};

std::vector<TokenRecord::Change> changes_between(const Held& before, const Held& after, const Names& names) {
  std::map<Held::key_type, std::pair<Count, Count>> both;
  for (const auto& [key, count] : before) both[key].first = count;
  for (const auto& [key, count] : after) both[key].second = count;
  std::vector<TokenRecord::Change> changes;
  for (const auto& [key, counts] : both) {
    if (counts.first == counts.second) continue;
    changes.push_back({.limiter = key.first,
                       .member = names.of(key.second),
                       .before = static_cast<std::int64_t>(counts.first),
                       .after = static_cast<std::int64_t>(counts.second)});
  }
  return changes;
}

/// The description of a record without knowledge of the state.
TokenRecord described(const ports::TokenLog::Record& record, const tokens::Event& event) {
  auto [kind, details] = tokens::describe(event);
  TokenRecord told;
  told.position = record.position;
  told.time_ms = record.time_ms;
  told.kind = std::move(kind);
  told.details = std::move(details);
  if (std::holds_alternative<tokens::Unknown>(event.body))
    told.details = std::to_string(record.bytes.size()) + " bytes that are not an event";
  else if (const auto* joined = std::get_if<tokens::Joined>(&event.body))
    told.written_by = member_of(event.member, *joined);
  else if (!std::holds_alternative<tokens::LimitSet>(event.body) &&
           !std::holds_alternative<tokens::VersionSet>(event.body))
    told.written_by = TokenMember{.id = event.member, .client = {}, .host = {}};
  return told;
}

/// Applies the record, and describes the changes.
TokenRecord applied(tokens::State& state, const ports::TokenLog::Record& record, const tokens::Event& event) {
  TokenRecord told = described(record, event);
  const auto limiters = named_by(event);
  const Held before = held_in(state, limiters);
  Names names;
  for (const auto& [key, count] : before) names.learn(state, key.second);
  names.learn(state, event.member);
  if (const auto* expire = std::get_if<tokens::Expire>(&event.body)) {
    names.learn(state, expire->member);
    const TokenMember silent = names.of(expire->member);
    if (!silent.host.empty()) {
      told.details = process_name(silent.client, silent.host, silent.pid) + ", silent since position " +
                     std::to_string(expire->silent_since);
    }
  }
  const tokens::Effects effects = tokens::apply(state, record.position, event);
  const Held after = held_in(state, limiters);
  for (const auto& [key, count] : after) names.learn(state, key.second);
  for (const auto id : effects.drained) names.learn(state, id);
  for (const auto id : effects.reclaimed) names.learn(state, id);
  if (told.written_by && told.written_by->host.empty()) told.written_by = names.of(event.member);
  told.outcome = tokens::to_text(effects.outcome);
  told.changes = changes_between(before, after, names);
  told.drained = names.of(effects.drained);
  told.reclaimed = names.of(effects.reclaimed);
  if (effects.ended) told.ended = names.of(*effects.ended);
  return told;
}

}  // namespace

struct TokenReader::Impl {
  explicit Impl(std::unique_ptr<ports::TokenLog> of)
      : log(std::move(of)), name(log->name()), begin(log->begin()), end(log->end()) {}

  /// Sets the state from which reading at `from` begins.
  void restore(std::int64_t from) {
    // A snapshot from beyond the end belongs to an earlier log of this name.
    std::optional<tokens::State> oldest;
    int too_old = 0;
    for (auto kept = log->snapshot(); kept; kept = log->snapshot(kept->number)) {
      auto saved = tokens::restore(kept->bytes);
      if (saved && saved->last + 1 < begin && ++too_old == kOldSnapshots) break;
      if (!saved || saved->last + 1 < begin || saved->last >= end) continue;
      oldest = std::move(saved);
      if (oldest->last < from) break;
    }
    if (begin == 0 && (!oldest || oldest->last >= from)) oldest = tokens::State{};
    known = oldest.has_value();
    state = oldest ? std::move(*oldest) : tokens::State{};
    known_from = state.last;
  }

  [[nodiscard]] bool means_something(std::int64_t at) const { return known && at > state.last; }

  void fetch(milliseconds timeout) {
    if (!upcoming.empty()) return;
    for (auto& record : log->read(timeout)) {
      if (record.position < next) continue;
      if (record.position != next + static_cast<std::int64_t>(upcoming.size())) {
        throw TokenLogBroken("positions " + std::to_string(next) + " to " + std::to_string(record.position - 1) +
                             " are missing in " + name);
      }
      // Several clocks wrote the times. A later record never shows an earlier time, so that a search by the shown time
      // finds it.
      latest_ms = record.time_ms = std::max(latest_ms, record.time_ms);
      upcoming.push_back(std::move(record));
    }
  }
  ports::TokenLog::Record take() {
    ports::TokenLog::Record record = std::move(upcoming.front());
    upcoming.pop_front();
    next = record.position + 1;
    if (times.empty()) first_time = record.position;
    times.push_back(record.time_ms);
    if (times.size() > kTimesKept) {
      times.pop_front();
      ++first_time;
    }
    return record;
  }
  void wait(milliseconds timeout, std::int64_t wanted) {
    const auto late = detail::deadline_after(timeout);
    while (upcoming.empty()) {
      if (steady_clock::now() >= late) {
        throw BrokerError(Code::kafka_unavailable, "reading " + name + " stopped at position " +
                                                       std::to_string(next - 1) + " of " + std::to_string(wanted) +
                                                       ": no record arrived for " +
                                                       std::to_string(timeout.count() / 1'000) +
                                                       " s. Check that its brokers run, and try again");
      }
      fetch(kLook);
    }
  }
  void skip() {
    const ports::TokenLog::Record record = take();
    if (means_something(record.position)) tokens::apply(state, record.position, tokens::decode(record.bytes));
  }

  /// Writes the change and reads its outcome. Absent: it was not read back before `late`.
  std::optional<tokens::Effects::Outcome> say(const tokens::LimitSet& word, steady_clock::time_point late) {
    const tokens::Event event{.member = random_id(), .epoch = 1, .seq = 1, .body = word};
    log->append(tokens::encode(event));
    for (; steady_clock::now() < late; fetch(kLook)) {
      // Returns stale, so that the caller writes the whole change again. A second copy of this event changes nothing,
      // or is stale too.
      if (log->failed()) {
        why_not = log->why_failed();
        return tokens::Effects::Outcome::stale;
      }
      while (!upcoming.empty()) {
        const ports::TokenLog::Record record = take();
        const tokens::Event read = tokens::decode(record.bytes);
        const tokens::Effects effects = tokens::apply(state, record.position, read);
        if (read == event) return effects.outcome;
      }
    }
    return std::nullopt;
  }

  std::unique_ptr<ports::TokenLog> log;
  const std::string name;
  const std::int64_t begin, end;
  bool known = false;
  tokens::State state;
  std::int64_t known_from = -1;  ///< state.last at the start
  std::int64_t next = 0;
  std::deque<ports::TokenLog::Record> upcoming;
  std::int64_t latest_ms = 0;  ///< of the records read since the start
  std::deque<std::int64_t> times;
  std::int64_t first_time = 0;
  std::string why_not;
};

TokenReader::TokenReader(std::unique_ptr<ports::TokenLog> log) : impl_(std::make_unique<Impl>(std::move(log))) {}
TokenReader::~TokenReader() = default;

const std::string& TokenReader::name() const { return impl_->name; }
std::int64_t TokenReader::begin() const { return impl_->begin; }
std::int64_t TokenReader::end() const { return impl_->end; }
std::int64_t TokenReader::position() const { return impl_->next - 1; }
const std::string& TokenReader::why_not_written() const { return impl_->why_not; }

std::optional<std::int64_t> TokenReader::known_from() const {
  return impl_->known ? std::optional(impl_->known_from) : std::nullopt;
}

void TokenReader::start(std::int64_t from) {
  from = std::clamp(from, impl_->begin, impl_->end);
  impl_->restore(from);
  impl_->upcoming.clear();
  impl_->times.clear();
  impl_->latest_ms = 0;
  impl_->next = impl_->known ? std::min(from, impl_->state.last + 1) : from;
  impl_->log->seek(impl_->next);
  read_to(from - 1);
}

std::optional<TokenReader::Upcoming> TokenReader::peek(milliseconds timeout) {
  // A log may return early with no record.
  const auto late = detail::deadline_after(timeout);
  do {
    impl_->fetch(std::chrono::ceil<milliseconds>(std::max(late - steady_clock::now(), steady_clock::duration::zero())));
  } while (impl_->upcoming.empty() && steady_clock::now() < late);
  if (impl_->upcoming.empty()) return std::nullopt;
  return Upcoming{.position = impl_->upcoming.front().position, .time_ms = impl_->upcoming.front().time_ms};
}

void TokenReader::require_available() const { static_cast<void>(impl_->log->end()); }

TokenRecord TokenReader::next() {
  impl_->wait(kPatience, impl_->next);
  const ports::TokenLog::Record record = impl_->take();
  const tokens::Event event = tokens::decode(record.bytes);
  return impl_->means_something(record.position) ? applied(impl_->state, record, event) : described(record, event);
}

void TokenReader::read_to(std::int64_t position) {
  while (this->position() < position) {
    impl_->wait(kPatience, position);
    impl_->skip();
  }
}

PermitsView TokenReader::permits() const {
  if (impl_->known && impl_->state.last <= position()) return detail::view_of(impl_->state);
  throw TokenLogBroken(impl_->name + " was truncated: it begins at position " + std::to_string(impl_->begin) +
                       (impl_->known ? ", and which members hold permits is known from position " +
                                           std::to_string(impl_->known_from) + " on"
                                     : ", and no snapshot continues in it: it is unknown which members hold "
                                       "permits"));
}

std::int64_t TokenReader::time_of(std::int64_t position) const {
  const std::int64_t at = position - impl_->first_time;
  if (at < 0 || at >= static_cast<std::int64_t>(impl_->times.size())) return 0;
  return impl_->times[static_cast<std::size_t>(at)];
}

bool TokenReader::set_limit(const std::string& limiter, std::optional<std::int64_t> limit, milliseconds timeout,
                            const std::string& by) {
  if (limiter.empty() || limiter.size() > tokens::kLongestName)
    throw Error(Code::limit_invalid,
                "the name of a limiter has 1 to " + std::to_string(tokens::kLongestName) + " bytes");
  if (limit && (*limit < 0 || static_cast<Count>(*limit) > tokens::kMostPermits)) {
    throw Error(Code::limit_invalid, "limiter '" + limiter + "': a limit must be from 0 (paused) to " +
                                         std::to_string(tokens::kMostPermits) + ", not " + std::to_string(*limit));
  }
  read_to(impl_->end - 1);
  (void)permits();  // throws if the state is unknown
  const auto late = detail::deadline_after(timeout);
  for (;;) {
    if (!limit && !impl_->state.limiters.contains(limiter)) return true;
    tokens::LimitSet word{.limiter = limiter,
                          .limit = {},
                          .seen = impl_->state.last,
                          .by = by.substr(0, tokens::kLongestName),
                          .at_ms = now_ms()};
    if (limit) word.limit = static_cast<Count>(*limit);
    const auto outcome = impl_->say(word, late);
    if (!outcome) return false;
    if (*outcome == tokens::Effects::Outcome::applied) return true;
    if (*outcome == tokens::Effects::Outcome::not_allowed)
      throw Error(Code::too_many_limiters, "limiter '" + limiter + "': the domain already has its maximum of " +
                                               std::to_string(tokens::kMostLimiters) + " limiters");
  }
}

std::optional<std::string> nearest_limiter(const PermitsView& view, std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& entry : view.limiters) names.push_back(entry.limiter);
  const auto nearest = detail::suggest(name, names);
  return nearest ? std::optional<std::string>(*nearest) : std::nullopt;
}

}  // namespace turnstile
