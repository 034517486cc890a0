#include "tokens/snapshot.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "message/digest.hpp"
#include "tokens/parts.hpp"
#include "tokens/planted.hpp"
#include "tokens/wire_parts.hpp"

namespace turnstile::tokens {

namespace {

/// Writes bytes that differ if the states differ: each number in 8 bytes, each text and each list with its length.
class Bytes {
 public:
  Bytes& operator<<(std::uint64_t number) {
    const auto byte = [&](int i) { return static_cast<char>(number >> (8 * i) & 0xff); };
    // Without a loop this is one store instruction. A snapshot has tens of thousands of numbers.
    const std::array little_endian{byte(0), byte(1), byte(2), byte(3), byte(4), byte(5), byte(6), byte(7)};
    bytes_.append(little_endian.data(), little_endian.size());
    return *this;
  }
  Bytes& operator<<(Position number) { return *this << static_cast<std::uint64_t>(number); }
  Bytes& operator<<(std::uint32_t number) { return *this << std::uint64_t{number}; }
  Bytes& operator<<(bool is) { return *this << std::uint64_t{is}; }
  Bytes& operator<<(const std::string& text) {
    *this << text.size();
    bytes_ += text;
    return *this;
  }
  Bytes& operator<<(const Partition& p) {
    return *this << p.topic << static_cast<std::uint64_t>(p.number) << p.group << p.store;
  }
  Bytes& operator<<(const std::set<Partition>& all) {
    *this << all.size();
    for (const Partition& p : all) *this << p;
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// A snapshot has the whole state. A planted bug overrides one of these.
bool keeps_ended_lives() { return !TURNSTILE_PLANTED(snapshot_forgets_ended_lives); }
bool keeps_draining() { return !TURNSTILE_PLANTED(snapshot_forgets_draining); }

}  // namespace

namespace {

std::uint64_t first_of_hash(const Bytes& b) {
  const detail::Sha256 hash = detail::sha256(b.bytes());
  std::uint64_t first = 0;
  for (std::size_t i = 0; i < 8; ++i) first = first << 8 | hash[i];
  return first;
}

/// 0 without any, as in the snapshots of builds that know no history.
std::uint64_t digest(const LimitHistory& history) {
  if (history.changes.empty()) return 0;
  Bytes b;
  for (const auto& [at, set] : history.changes)
    b << at << set.limiter << set.limit.has_value() << set.limit.value_or(0) << set.seen << set.by << set.at_ms;
  return first_of_hash(b);
}

}  // namespace

std::uint64_t digest(const State& s) {
  Bytes b;
  b << s.last << s.version << s.limits_set_at << s.ignored << s.unknown << s.members.size();
  for (const auto& [id, m] : s.members)
    b << id << m.about.host << m.about.pid << m.about.client << m.about.lease_ms << m.about.weight << m.about.knows
      << m.about.reserve_ms << m.about.most_limiters << m.epoch << m.seq << m.joined_at << m.last << m.draining
      << m.owns << m.unfenced;
  b << s.limiters.size();
  for (const auto& [name, l] : s.limiters) {
    b << name << l.set.has_value() << l.set.value_or(0) << l.wanted << l.starved << l.holdings.size();
    for (const auto& [id, h] : l.holdings) {
      b << id << h.limit << h.strict << h.set_aside << h.draining << h.weight << h.wants << h.urgent << h.least
        << h.busy << h.granted << h.given_back << h.share << h.in_line_since << h.held_since;
      if (h.outlives_fence) b << h.outlives_fence;  // otherwise the digest is as in versions without this field
    }
  }
  b << s.partitions.size();
  for (const auto& [p, e] : s.partitions) b << p << e.owner << e.claimed_at << e.fence;
  b << s.reserves.size();
  for (const auto& [id, r] : s.reserves) {
    b << id << r.ms << r.of.size();
    for (const auto& [name, count] : r.of) b << name << count;
  }
  b << s.ended.size();
  for (const auto& [at, id] : s.ended) b << at << id;
  if (s.parts > 1)
    b << s.parts << s.part << s.division << s.closed;  // otherwise the digest is as in builds that know no parts
  return first_of_hash(b);
}

std::string save(const State& s) {
  wire::Snapshot to;
  to.set_magic(kMagic);
  to.set_last(s.last);
  to.set_version(s.version);
  if (s.parts > 1) {
    to.set_parts(s.parts);
    to.set_part(s.part);
    to.set_division(s.division);
    to.set_closed(s.closed);
  }
  to.set_limits_set_at(s.limits_set_at);
  to.set_ignored(s.ignored);
  to.set_unknown(s.unknown);
  to.set_digest(digest(s));
  for (const auto& [id, m] : s.members) {
    auto* member = to.add_members();
    member->set_id(id);
    write_joined(m.about, *member->mutable_about());
    member->set_epoch(m.epoch);
    member->set_seq(m.seq);
    member->set_joined_at(m.joined_at);
    member->set_last(m.last);
    member->set_draining(m.draining);
    for (const auto& p : m.owns) write_partition(p, *member->add_owns());
    for (const auto& p : m.unfenced) write_partition(p, *member->add_unfenced());
  }
  for (const auto& [name, l] : s.limiters) {
    auto* limiter = to.add_limiters();
    limiter->set_name(name);
    if (l.set) limiter->set_set(*l.set);
    limiter->set_wanted(l.wanted);
    limiter->set_starved(l.starved);
    for (const auto& [id, h] : l.holdings) {
      auto* holding = limiter->add_holdings();
      holding->set_member(id);
      holding->set_limit(h.limit);
      holding->set_strict(h.strict);
      holding->set_set_aside(h.set_aside);
      holding->set_outlives_fence(h.outlives_fence);
      holding->set_wants(h.wants);
      holding->set_urgent(h.urgent);
      holding->set_least(h.least);
      holding->set_busy(h.busy);
      holding->set_granted(h.granted);
      holding->set_given_back(h.given_back);
      holding->set_share(h.share);
      holding->set_in_line_since(h.in_line_since);
      holding->set_held_since(h.held_since);
    }
  }
  for (const auto& [p, e] : s.partitions) {
    auto* entry = to.add_partitions();
    write_partition(p, *entry->mutable_partition());
    entry->set_owner(e.owner);
    entry->set_claimed_at(e.claimed_at);
    entry->set_fence(e.fence);
  }
  for (const auto& [id, r] : s.reserves) {
    auto* reserve = to.add_reserves();
    reserve->set_member(id);
    reserve->set_ms(r.ms);
    for (const auto& [name, count] : r.of) {
      auto* of = reserve->add_of();
      of->set_limiter(name);
      of->set_count(count);
    }
  }
  for (const auto& [at, id] : s.ended) {
    auto* ended = to.add_ended();
    ended->set_at(at);
    ended->set_member(id);
  }
  for (const auto& [at, set] : s.limit_history.changes) {
    auto* change = to.add_limit_changes();
    change->set_at(at);
    write_limit_set(set, *change->mutable_set());
  }
  to.set_limit_changes_digest(digest(s.limit_history));
  return to.SerializeAsString();
}

std::optional<State> restore(std::string_view bytes) {
  wire::Snapshot from;
  if (!from.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) || from.magic() != kMagic) return std::nullopt;
  State s;
  s.last = from.last();
  s.version = from.version();
  s.parts = std::max<std::uint32_t>(from.parts(), 1);
  s.part = from.part();
  s.division = from.division();
  s.closed = from.closed();
  if (s.parts > kMostParts || s.part >= s.parts || (s.parts == 1 && (s.closed || s.division != 0))) return std::nullopt;
  s.limits_set_at = from.limits_set_at();
  s.ignored = from.ignored();
  s.unknown = from.unknown();
  for (const auto& member : from.members()) {
    MemberEntry& m = s.members[member.id()];
    m.about = read_joined(member.about());
    forget_what_is_applied(m.about);
    m.epoch = member.epoch();
    m.seq = member.seq();
    m.joined_at = member.joined_at();
    m.last = member.last();
    m.draining = member.draining();
    for (const auto& p : member.owns()) m.owns.insert(read_partition(p));
    for (const auto& p : member.unfenced()) m.unfenced.insert(read_partition(p));
  }
  for (const auto& limiter : from.limiters()) {
    LimiterEntry& l = s.limiters[limiter.name()];
    if (limiter.has_set()) l.set = limiter.set();
    l.wanted = limiter.wanted();
    l.starved = limiter.starved();
    l.closed = s.closed;
    for (const auto& h : limiter.holdings()) {
      const auto member = s.members.find(h.member());
      if (member == s.members.end()) return std::nullopt;
      l.holdings[h.member()] = {.limit = h.limit(),
                                .strict = h.strict(),
                                .set_aside = h.set_aside(),
                                .outlives_fence = h.outlives_fence(),
                                .draining = member->second.draining && !h.outlives_fence(),
                                .weight = member->second.about.weight,
                                .wants = h.wants(),
                                .urgent = h.urgent(),
                                .least = h.least(),
                                .busy = h.busy(),
                                .granted = h.granted(),
                                .given_back = h.given_back(),
                                .share = h.share(),
                                .in_line_since = h.in_line_since(),
                                .held_since = h.held_since()};
    }
  }
  for (const auto& entry : from.partitions())
    s.partitions[read_partition(entry.partition())] = {entry.owner(), entry.claimed_at(), entry.fence()};
  for (const auto& reserve : from.reserves()) {
    Reserve& r = s.reserves[reserve.member()];
    r.ms = reserve.ms();
    for (const auto& of : reserve.of()) {
      r.of[of.limiter()] = of.count();
      const auto limiter = s.limiters.find(of.limiter());
      if (limiter == s.limiters.end()) return std::nullopt;
      limiter->second.reserved += of.count();
    }
  }
  for (const auto& ended : from.ended()) {
    s.ended[ended.at()] = ended.member();
    if (keeps_ended_lives()) s.ended_ids.insert(ended.member());
  }
  for (const auto& change : from.limit_changes())
    s.limit_history.changes.push_back({change.at(), read_limit_set(change.set())});
  if (digest(s) != from.digest() || digest(s.limit_history) != from.limit_changes_digest()) return std::nullopt;
  if (!keeps_draining()) {
    for (auto& [id, member] : s.members) member.draining = false;
  }
  return s;
}

}  // namespace turnstile::tokens
