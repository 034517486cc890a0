#include "tests/simulation/describe.hpp"

namespace turnstile::simulation {

namespace {

using namespace tokens;

std::string text(std::uint64_t number) { return std::to_string(number); }
std::string text(const Partition& p) {
  return p.topic + "/" + std::to_string(p.number) + (p.group.empty() ? "" : " of " + p.group);
}

std::string text(const Line& line) {
  return " " + line.limiter + " wants=" + text(line.wants) + " busy=" + text(line.busy) +
         " back=" + text(line.given_back) + (line.least > 1 ? " least=" + text(line.least) : "") +
         (line.turn_over ? " turn over" : "") + (line.gone ? " gone" : "");
}

struct Text {
  std::string operator()(const Unknown&) const { return "unknown"; }
  std::string operator()(const Joined& e) const { return "joined " + e.client; }
  std::string operator()(const Keep& e) const {
    std::string all = "keep";
    for (const Line& line : e.lines) all += text(line) + ";";
    return all;
  }
  std::string operator()(const Acquire& e) const { return "acquire" + text(e.line); }
  std::string operator()(const Release& e) const { return "release" + text(e.line); }
  std::string operator()(const PartitionsClaimed& e) const {
    std::string all = "claimed";
    for (const auto& claim : e.claims)
      all +=
          " " + text(claim.partition) + " fence=" + text(claim.fence) + " previous=" + std::to_string(claim.previous);
    return all;
  }
  std::string operator()(const PartitionsRevoked& e) const {
    std::string all = "revoked";
    for (const auto& partition : e.partitions) all += " " + text(partition);
    return all;
  }
  std::string operator()(const Drained&) const { return "drained"; }
  std::string operator()(const Expire& e) const {
    return std::string("expire ") + (e.reserve ? "the reserve of " : "") + "member " + text(e.member) +
           " silent since " + std::to_string(e.silent_since);
  }
  std::string operator()(const LimitSet& e) const {
    return "limit " + e.limiter + " " + (e.limit ? text(*e.limit) : "unset") + " seen=" + std::to_string(e.seen);
  }
  std::string operator()(const Divided& e) const {
    return "divided into " + text(e.parts) + ", witness " + text(e.witness);
  }
  std::string operator()(const Opened& e) const {
    return "opened part " + text(e.part) + ", with " + text(e.sets.size()) + " limits";
  }
  std::string operator()(const VersionSet& e) const { return "version " + text(e.version); }
  std::string operator()(const Left&) const { return "left"; }
};

}  // namespace

std::string describe(const tokens::Event& event) {
  return "member " + text(event.member) + " epoch " + text(event.epoch) + " seq " + text(event.seq) + ": " +
         std::visit(Text{}, event.body);
}

}  // namespace turnstile::simulation
