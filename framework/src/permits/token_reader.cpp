#include "turnstile/token_reader.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

#include "config/suggest.hpp"
#include "permits/permits_view.hpp"
#include "permits/token_reader_impl.hpp"
#include "support/deadline.hpp"
#include "tokens/apply.hpp"
#include "tokens/describe.hpp"
#include "tokens/wire.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using tokens::Count;

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
           !std::holds_alternative<tokens::VersionSet>(event.body) &&
           !std::holds_alternative<tokens::Divided>(event.body) && !std::holds_alternative<tokens::Opened>(event.body))
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

TokenReader::TokenReader(std::unique_ptr<ports::TokenLog> log, TokenLogParts others)
    : impl_(std::make_unique<Impl>(std::move(log))) {
  impl_->open_part = std::move(others);
}
TokenReader::TokenReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
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
  impl_->from_begin = from == impl_->begin;
  impl_->upcoming.clear();
  impl_->times.clear();
  impl_->latest_ms = 0;
  impl_->next = impl_->known ? std::min(from, impl_->state.last + 1) : from;
  impl_->log->seek(impl_->next);
  impl_->read_to(from - 1);
}

std::optional<TokenReader::Upcoming> TokenReader::peek(milliseconds timeout) {
  // A log may return early with no record.
  const auto late = detail::deadline_after(timeout);
  do {
    impl_->fetch(detail::time_left(late));
  } while (impl_->upcoming.empty() && steady_clock::now() < late);
  if (impl_->upcoming.empty()) return std::nullopt;
  return Upcoming{.position = impl_->upcoming.front().position, .time_ms = impl_->upcoming.front().time_ms};
}

void TokenReader::require_available() const { static_cast<void>(impl_->log->end()); }

TokenRecord TokenReader::next() {
  impl_->wait(Impl::kPatience, impl_->next);
  const ports::TokenLog::Record record = impl_->take();
  const tokens::Event event = tokens::decode(record.bytes);
  return impl_->means_something(record.position) ? applied(impl_->state, record, event) : described(record, event);
}

void TokenReader::read_to(std::int64_t position) { impl_->read_to(position); }

std::optional<std::string> nearest_limiter(const PermitsView& view, std::string_view name) {
  std::vector<std::string_view> names;
  for (const auto& entry : view.limiters) names.push_back(entry.limiter);
  const auto nearest = detail::suggest(name, names);
  return nearest ? std::optional<std::string>(*nearest) : std::nullopt;
}

}  // namespace turnstile
