#include "tokens/wire.hpp"

#include "tokens/wire_parts.hpp"

namespace turnstile::tokens {

namespace {

wire::Line* write(const Line& line, wire::Line* to) {
  to->set_limiter(line.limiter);
  to->set_limit(line.limit);
  to->set_strict(line.strict);
  to->set_wants(line.wants);
  to->set_urgent(line.urgent);
  to->set_least(line.least);
  to->set_busy(line.busy);
  to->set_given_back(line.given_back);
  to->set_set_aside(line.set_aside);
  to->set_turn_over(line.turn_over);
  to->set_outlives_fence(line.outlives_fence);
  to->set_reserve(line.reserve);
  to->set_gone(line.gone);
  return to;
}

Line read(const wire::Line& from) {
  return {.limiter = from.limiter(),
          .limit = from.limit(),
          .strict = from.strict(),
          .wants = from.wants(),
          .urgent = from.urgent(),
          .least = from.least(),
          .busy = from.busy(),
          .given_back = from.given_back(),
          .set_aside = from.set_aside(),
          .turn_over = from.turn_over(),
          .outlives_fence = from.outlives_fence(),

          .reserve = from.reserve(),
          .gone = from.gone()};
}

struct Writer {
  wire::Event& to;

  void operator()(const Unknown&) const {}
  void operator()(const Joined& e) const { write_joined(e, *to.mutable_joined()); }
  void operator()(const Keep& e) const {
    auto* keep = to.mutable_keep();
    for (const Line& line : e.lines) write(line, keep->add_lines());
    if (!e.checkpoint) return;
    keep->mutable_checkpoint()->set_position(e.checkpoint->position);
    keep->mutable_checkpoint()->set_digest(e.checkpoint->digest);
  }
  void operator()(const Acquire& e) const { write(e.line, to.mutable_acquire()->mutable_line()); }
  void operator()(const Release& e) const { write(e.line, to.mutable_release()->mutable_line()); }
  void operator()(const PartitionsClaimed& e) const {
    auto* claimed = to.mutable_claimed();
    for (const auto& claim : e.claims) {
      auto* one = claimed->add_claims();
      write_partition(claim.partition, *one->mutable_partition());
      one->set_fence(claim.fence);
      one->set_previous(claim.previous);
    }
  }
  void operator()(const PartitionsRevoked& e) const {
    auto* revoked = to.mutable_revoked();
    for (const auto& partition : e.partitions) write_partition(partition, *revoked->add_partitions());
  }
  void operator()(const Drained&) const { to.mutable_drained(); }
  void operator()(const Expire& e) const {
    to.mutable_expire()->set_member(e.member);
    to.mutable_expire()->set_silent_since(e.silent_since);
    to.mutable_expire()->set_reserve(e.reserve);
  }
  void operator()(const LimitSet& e) const { write_limit_set(e, *to.mutable_limit_set()); }
  void operator()(const VersionSet& e) const { to.mutable_version_set()->set_version(e.version); }
  void operator()(const Divided& e) const {
    to.mutable_divided()->set_parts(e.parts);
    to.mutable_divided()->set_division(e.division);
    to.mutable_divided()->set_witness(e.witness);
    to.mutable_divided()->set_joined_at(e.joined_at);
  }
  void operator()(const Opened& e) const {
    auto* opened = to.mutable_opened();
    opened->set_division(e.division);
    opened->set_part(e.part);
    for (const auto& [limiter, limit] : e.sets) {
      auto* set = opened->add_sets();
      set->set_limiter(limiter);
      set->set_limit(limit);
    }
  }
  void operator()(const Left&) const { to.mutable_left(); }
};

decltype(Event::body) read_body(const wire::Event& from) {
  switch (from.body_case()) {
    case wire::Event::kJoined: return read_joined(from.joined());
    case wire::Event::kKeep: {
      Keep keep;
      for (const auto& line : from.keep().lines()) keep.lines.push_back(read(line));
      if (from.keep().has_checkpoint())
        keep.checkpoint = {from.keep().checkpoint().position(), from.keep().checkpoint().digest()};
      return keep;
    }
    case wire::Event::kAcquire: return Acquire{read(from.acquire().line())};
    case wire::Event::kRelease: return Release{read(from.release().line())};
    case wire::Event::kClaimed: {
      PartitionsClaimed claimed;
      for (const auto& claim : from.claimed().claims())
        claimed.claims.push_back({read_partition(claim.partition()), claim.fence(), claim.previous()});
      return claimed;
    }
    case wire::Event::kRevoked: {
      PartitionsRevoked revoked;
      for (const auto& partition : from.revoked().partitions()) revoked.partitions.push_back(read_partition(partition));
      return revoked;
    }
    case wire::Event::kDrained: return Drained{};
    case wire::Event::kExpire:
      return Expire{from.expire().member(), from.expire().silent_since(), from.expire().reserve()};
    case wire::Event::kLimitSet: return read_limit_set(from.limit_set());
    case wire::Event::kVersionSet: return VersionSet{from.version_set().version()};
    case wire::Event::kDivided:
      return Divided{from.divided().parts(), from.divided().division(), from.divided().witness(),
                     from.divided().joined_at()};
    case wire::Event::kOpened: {
      Opened opened{.division = from.opened().division(), .part = from.opened().part(), .sets = {}};
      for (const auto& set : from.opened().sets()) opened.sets.push_back({set.limiter(), set.limit()});
      return opened;
    }
    case wire::Event::kLeft: return Left{};
    case wire::Event::BODY_NOT_SET: break;
  }
  return Unknown{};
}

}  // namespace

std::string encode(const Event& event) {
  wire::Event to;
  to.set_magic(kMagic);
  to.set_member(event.member);
  to.set_epoch(event.epoch);
  to.set_seq(event.seq);
  std::visit(Writer{to}, event.body);
  return to.SerializeAsString();
}

Event decode(std::string_view bytes) {
  wire::Event from;
  if (bytes.size() > kLongestRecord || !from.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())) ||
      from.magic() != kMagic)
    return {};
  Event event{.member = from.member(), .epoch = from.epoch(), .seq = from.seq(), .body = {}};
  event.body = read_body(from);
  return event;
}

}  // namespace turnstile::tokens
