#include "turnstile/token_audit.hpp"

#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "support/deadline.hpp"
#include "tokens/apply.hpp"
#include "tokens/member_settings.hpp"
#include "tokens/parts.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/error.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::size_t kMostFindings = 1'000;
/// How long it waits for records that the log must have.
constexpr milliseconds kPatience{10'000};
constexpr milliseconds kLook{100};
/// The search for snapshots ends after this number of those that lie before the log's beginning.
constexpr int kOldSnapshots = 4;
/// A domain writes a snapshot every few thousand records, and compaction removes them.
constexpr int kMostSnapshots = 10'000;

template <class Finding>
void add(std::vector<Finding>& to, Finding finding) {
  if (to.size() < kMostFindings) to.push_back(std::move(finding));
}

class Replay {
 public:
  /// `first`: the state before the log's first record.
  explicit Replay(ports::TokenLog& log, tokens::State first = {}) : log_(log), first_(std::move(first)) {
    audit_.begin = log.begin();
    audit_.end = log.end();
  }

  /// At the end.
  [[nodiscard]] const tokens::State& state() const { return state_; }

  TokenAudit run() {
    collect_snapshots();
    if (!audit_.known) return std::move(audit_);
    audit_.known_from = state_.last;
    look_at_limits(state_.last, 0, false);
    read_all();
    return std::move(audit_);
  }

  /// After run(): the state at the end that the log has now. It is not checked.
  const tokens::State& state_now() {
    audit_.end = log_.end();
    read_all();
    return state_;
  }

 private:
  void read_all() {
    std::int64_t next = std::max(audit_.begin, state_.last + 1);
    log_.seek(next);
    auto late = detail::deadline_after(kPatience);
    while (next < audit_.end) {
      const auto records = log_.read(kLook);
      for (const auto& record : records) {
        if (record.position < next || record.position >= audit_.end) continue;
        if (record.position != next) {
          throw TokenLogBroken("positions " + std::to_string(next) + " to " + std::to_string(record.position - 1) +
                               " are missing in " + log_.name());
        }
        ++next;
        check(record);
      }
      if (!records.empty()) late = detail::deadline_after(kPatience);
      else if (steady_clock::now() >= late)
        throw BrokerError(Code::kafka_unavailable,
                          "reading " + log_.name() + " stopped at position " + std::to_string(next - 1) + " of " +
                              std::to_string(audit_.end - 1) + ". Check that its brokers run, and try again");
    }
  }

  /// The replay begins with the oldest snapshot that continues in the log. All later ones are compared.
  void collect_snapshots() {
    std::optional<tokens::State> oldest;
    int too_old = 0, read = 0;
    for (auto kept = log_.snapshot(); kept && read < kMostSnapshots; kept = log_.snapshot(kept->number), ++read) {
      auto saved = tokens::restore(kept->bytes);
      if (saved && !tokens::is_same_part(*saved, first_)) continue;
      if (saved && saved->last + 1 < audit_.begin && ++too_old == kOldSnapshots) break;
      // A snapshot from beyond the end belongs to an earlier log of this name.
      if (!saved || saved->last + 1 < audit_.begin || saved->last >= audit_.end) continue;
      if (oldest) expected_.emplace(oldest->last, tokens::digest(*oldest));
      oldest = std::move(saved);
    }
    if (audit_.begin == 0) {
      if (oldest) expected_.emplace(oldest->last, tokens::digest(*oldest));
      oldest = first_;
    }
    audit_.known = oldest.has_value();
    if (oldest) state_ = std::move(*oldest);
  }

  void check(const ports::TokenLog::Record& record) {
    const tokens::Event event = tokens::decode(record.bytes);
    if (audit_.records++ == 0) audit_.first_time_ms = record.time_ms;
    const std::string writer = text_of(event.member);
    tokens::apply(state_, record.position, event);
    look_at_limits(record.position, record.time_ms, true);
    compare_snapshots(record.position);
    if (const auto* keep = std::get_if<tokens::Keep>(&event.body); keep != nullptr && keep->checkpoint)
      compare_checkpoint(*keep->checkpoint, writer);
    if (record.position % digest_every_ == 0) remember(record.position);
  }

  void remember(std::int64_t position) {
    digests_[position] = tokens::digest(state_);
    if (digests_.size() > kMostFindings) digests_.erase(digests_.begin());
  }

  void compare_checkpoint(const tokens::Checkpoint& checkpoint, const std::string& writer) {
    const auto found = digests_.find(checkpoint.position);
    if (found == digests_.end()) return;
    ++audit_.compared;
    if (found->second != checkpoint.digest) add(audit_.differences, {checkpoint.position, writer});
  }

  void compare_snapshots(std::int64_t position) {
    const auto [first, last] = expected_.equal_range(position);
    for (auto at = first; at != last; ++at) {
      ++audit_.compared;
      if (at->second != tokens::digest(state_)) add(audit_.differences, {position, std::string("a snapshot")});
    }
  }

  /// Members that hold more than the limit are right if it was lowered. They must not get more.
  void look_at_limits(std::int64_t position, std::int64_t time_ms, bool grew_now) {
    for (const auto& [name, limiter] : state_.limiters) {
      const auto held = static_cast<std::int64_t>(limiter.held()), limit = static_cast<std::int64_t>(limiter.limit());
      auto& before = held_[name];
      if (held > limit && (!grew_now || held > before))
        add(grew_now ? audit_.excesses : audit_.lowered, {position, time_ms, name, held, limit});
      before = held;
    }
  }

  [[nodiscard]] std::string text_of(tokens::MemberId id) const {
    const auto found = state_.members.find(id);
    if (found == state_.members.end()) return "member " + std::to_string(id);
    return process_name(found->second.about.client, found->second.about.host, found->second.about.pid);
  }

  ports::TokenLog& log_;
  const tokens::State first_;
  const std::int64_t digest_every_ = tokens::MemberSettings{}.checkpoint_every;  ///< as members do
  TokenAudit audit_;
  tokens::State state_;
  std::multimap<std::int64_t, std::uint64_t> expected_;  ///< the digests of snapshots, by their position
  std::map<std::int64_t, std::uint64_t> digests_;        ///< the replay's own
  std::map<std::string, std::int64_t> held_;
};

}  // namespace

namespace {

template <class Finding>
void add_all(std::vector<Finding>& to, std::vector<Finding> from) {
  for (Finding& finding : from) add(to, std::move(finding));
}

/// A part opens after all permits of its limiters have returned to part 0. `directory` is read after the parts, because
/// they may have opened while they were read.
void look_at_moved(const tokens::State& directory, const std::set<std::uint32_t>& open, TokenAudit& audit) {
  for (const auto& [name, limiter] : directory.limiters) {
    const tokens::Count out = limiter.held() + limiter.reserved;
    if (out > 0 && open.contains(tokens::part_of(name, directory.parts)))
      add(audit.excesses, {directory.last, 0, name, static_cast<std::int64_t>(out), 0});
  }
}

}  // namespace

TokenAudit audit_token_log(ports::TokenLog& log, const TokenLogParts& others) {
  Replay first(log);
  TokenAudit all = first.run();
  std::set<std::uint32_t> open;
  for (std::uint32_t part = 1; part < first.state().parts; ++part) {
    if (!others) throw TokenLogBroken(log.name() + " is divided into parts, and only its first part was opened");
    const auto other = others(part);
    Replay replay(*other, tokens::first_state(first.state(), part));
    TokenAudit audit = replay.run();
    if (audit.known && !replay.state().closed) open.insert(part);
    all.known = all.known && audit.known;
    all.records += audit.records;
    all.compared += audit.compared;
    for (auto& difference : audit.differences) difference.what += " of part " + std::to_string(part);
    add_all(all.excesses, std::move(audit.excesses));
    add_all(all.differences, std::move(audit.differences));
    add_all(all.lowered, std::move(audit.lowered));
  }
  if (all.known && !open.empty()) look_at_moved(first.state_now(), open, all);
  return all;
}

}  // namespace turnstile
