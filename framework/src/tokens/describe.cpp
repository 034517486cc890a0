#include "tokens/describe.hpp"

namespace turnstile::tokens {

namespace {

std::string text(const Partition& p) {
  return p.topic + "[" + std::to_string(p.number) + "]" + (p.group.empty() ? "" : " of group " + p.group);
}

std::string text(const Line& line) {
  std::string all = line.limiter + ": wants " + std::to_string(line.wants);
  if (line.urgent > 0) all += " (" + std::to_string(line.urgent) + " urgent)";
  if (line.least > 1) all += ", at least " + std::to_string(line.least) + " at once";
  all += ", busy " + std::to_string(line.busy) + ", given back " + std::to_string(line.given_back);
  if (line.set_aside > 0) all += ", " + std::to_string(line.set_aside) + " set aside";
  if (line.reserve > 0) all += ", " + std::to_string(line.reserve) + " of them for itself";
  if (line.turn_over) all += ", its turn is over";
  if (line.gone) all += ", not used any more";
  return all;
}

/// "a; b; c"
template <class Items, class Text>
std::string list(const Items& items, Text text_of, const char* between = "; ") {
  std::string all;
  for (const auto& item : items) all += (all.empty() ? "" : between) + text_of(item);
  return all;
}

struct Describe {
  Description operator()(const Unknown&) const { return {"unknown", ""}; }
  Description operator()(const Joined& e) const {
    return {"joined", "lease " + std::to_string(e.lease_ms) + " ms, weight " + std::to_string(e.weight)};
  }
  Description operator()(const Keep& e) const {
    return {"keep", list(e.lines, [](const Line& line) { return text(line); })};
  }
  Description operator()(const Acquire& e) const { return {"acquire", text(e.line)}; }
  Description operator()(const Release& e) const { return {"release", text(e.line)}; }
  Description operator()(const PartitionsClaimed& e) const {
    const auto claim = [](const PartitionsClaimed::Claim& c) {
      return text(c.partition) + (c.fence > 0 ? " fenced by epoch " + std::to_string(c.fence) : " without a fence");
    };
    return {"partitions claimed", list(e.claims, claim, ", ")};
  }
  Description operator()(const PartitionsRevoked& e) const {
    return {"partitions revoked", list(
                                      e.partitions, [](const Partition& p) { return text(p); }, ", ")};
  }
  Description operator()(const Drained&) const { return {"drained", "nothing of it runs any more"}; }
  Description operator()(const Expire& e) const {
    return {"expire", (e.reserve ? "the reserve of member " : "member ") + std::to_string(e.member) +
                          ", silent since position " + std::to_string(e.silent_since)};
  }
  Description operator()(const LimitSet& e) const {
    const std::string by = e.by.empty() ? "" : ", by " + e.by;
    if (!e.limit) return {"limit unset", e.limiter + by};
    return {"limit set", e.limiter + ": " + std::to_string(*e.limit) + (*e.limit == 0 ? " (paused)" : "") + by};
  }
  Description operator()(const VersionSet& e) const {
    return {"version set", "version " + std::to_string(e.version) + " holds from the next position on"};
  }
  Description operator()(const Divided& e) const {
    return {"divided",
            "the log has " + std::to_string(e.parts) + " parts from the next position on; this one grants nothing"};
  }
  Description operator()(const Opened& e) const {
    const auto set = [](const Opened::Set& s) { return s.limiter + ": " + std::to_string(s.limit); };
    return {"opened", "nobody has permits of this part's limiters in part 0 any more" +
                          (e.sets.empty() ? "" : "; operators had set " + list(e.sets, set, ", "))};
  }
  Description operator()(const Left&) const { return {"left", ""}; }
};

}  // namespace

Description describe(const Event& event) { return std::visit(Describe{}, event.body); }

}  // namespace turnstile::tokens
