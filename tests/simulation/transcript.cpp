#include "tests/simulation/transcript.hpp"

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"

namespace turnstile::simulation {

using namespace tokens;

namespace {

std::vector<std::string> split(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

/// Removes "name=value" from the words, and returns the value.
std::optional<std::string> take(std::vector<std::string>& words, const std::string& name) {
  const auto found = std::find_if(words.begin(), words.end(), [&](const auto& w) { return w.starts_with(name + "="); });
  if (found == words.end()) return std::nullopt;
  std::string value = found->substr(name.size() + 1);
  words.erase(found);
  return value;
}

std::uint64_t take(std::vector<std::string>& words, const std::string& name, std::uint64_t otherwise) {
  const auto value = take(words, name);
  return value ? std::stoull(*value) : otherwise;
}

bool take_flag(std::vector<std::string>& words, const std::string& name) { return std::erase(words, name) > 0; }

Partition partition(std::vector<std::string> words) {
  const std::string group = take(words, "group").value_or(""), store = take(words, "store").value_or("");
  const std::string& text = words.at(0);
  const auto slash = text.find('/');
  if (slash == std::string::npos) throw std::invalid_argument("a partition is written topic/number, not " + text);
  return {text.substr(0, slash), std::stoi(text.substr(slash + 1)), group, store};
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

const std::string& only(const std::vector<std::string>& words) {
  if (words.size() != 1) throw std::invalid_argument("one word more or less was expected");
  return words.front();
}

}  // namespace

std::optional<std::string> Transcript::run(std::string_view line) {
  const std::string_view text = line.substr(0, line.find('#'));
  const auto words = split(text);
  if (words.empty()) return std::nullopt;
  try {
    if (!text.starts_with(' ')) {
      append(words);
      return std::nullopt;
    }
    unexpected_ = false;
    ++expectations_;
    std::string joined;
    for (const std::string& word : words) joined += (joined.empty() ? "" : " ") + word;
    return expect(joined);
  } catch (const std::exception& error) {
    return "cannot be read: " + std::string(error.what());
  }
}

void Transcript::append(const Words& all) {
  Words words = all;
  const auto at = static_cast<Position>(records_.size());
  if (words.size() > 2 && words[1] == "=") {
    labels_[words[0]] = at;
    words.erase(words.begin(), words.begin() + 2);
  }
  if (words.at(0) == "again") records_.push_back(records_.at(static_cast<std::size_t>(position(words.at(1)))));
  else if (words.at(0) == "bytes:") records_.push_back(from_hex(words.at(1)));
  else records_.push_back(encode(event(words)));
  effects_ = apply(state_, at, decode(records_.back()));
  unexpected_ = true;
  const auto restored = restore(save(state_));
  if (!restored || *restored != state_)
    throw std::logic_error("after this record the state cannot be saved and restored");
}

Event Transcript::event(const Words& all) {
  Words words(all.begin() + 2, all.end());
  std::string name = all.at(0);
  if (name.back() != ':') throw std::invalid_argument("who says it? NAME: ...");
  name.pop_back();
  const std::string& verb = all.at(1);
  if (name == "operator") return {0, 0, 0, body(verb, words)};
  if (const auto epoch = take(words, "epoch")) {
    if (epochs_[name] != std::stoul(*epoch)) seqs_[name] = 0;
    epochs_[name] = static_cast<std::uint32_t>(std::stoul(*epoch));
  }
  const std::uint64_t seq = take(words, "seq", seqs_[name] + 1);
  seqs_[name] = std::max(seqs_[name], seq);
  return {member(name), std::max(epochs_[name], 1U), seq, body(verb, words)};
}

decltype(Event::body) Transcript::body(const std::string& verb, Words words) {
  if (verb == "joined") {
    Joined joined{.host = "host", .pid = 1, .client = "client"};
    joined.lease_ms = static_cast<std::uint32_t>(take(words, "lease_ms", 10'000));
    joined.weight = static_cast<std::uint32_t>(take(words, "weight", 1));
    joined.reserve_ms = static_cast<std::uint32_t>(take(words, "reserve_ms", 0));
    if (const auto was = take(words, "was")) joined.was = {member(*was)};
    joined.knows = static_cast<std::uint32_t>(take(words, "knows", 1));
    return joined;
  }
  if (verb == "acquire") return Acquire{line(words)};
  if (verb == "release") return Release{line(words)};
  if (verb == "keep") return words.empty() ? Keep{} : Keep{{line(words)}, {}};
  if (verb == "claimed") {
    PartitionsClaimed::Claim claim;
    claim.fence = take(words, "fence", 0);
    claim.previous = position(take(words, "previous").value_or("none"));
    claim.partition = partition(words);
    return PartitionsClaimed{{claim}};
  }
  if (verb == "revoked") return PartitionsRevoked{{partition(words)}};
  if (verb == "drained") return Drained{};
  if (verb == "left") return Left{};
  if (verb == "expire") {
    const Position since = position(take(words, "silent_since").value_or("none"));
    const bool reserve = take_flag(words, "reserve");
    return Expire{member(only(words)), since, reserve};
  }
  if (verb == "limit") {
    LimitSet set{.limiter = words.at(0), .limit = {}, .seen = position(take(words, "seen").value_or("none"))};
    if (words.at(1) != "unset") set.limit = std::stoull(words.at(1));
    return set;
  }
  if (verb == "version") return VersionSet{static_cast<std::uint32_t>(std::stoul(only(words)))};
  throw std::invalid_argument("nobody says " + verb);
}

Line Transcript::line(Words words) {
  Line line;
  line.limit = take(words, "limit", 4);
  line.wants = take(words, "wants", 0);
  line.urgent = take(words, "urgent", 0);
  line.least = take(words, "least", 1);
  line.busy = take(words, "busy", 0);
  line.given_back = take(words, "back", 0);
  line.set_aside = take(words, "aside", 0);
  line.reserve = take(words, "reserve", 0);
  line.gone = take_flag(words, "gone");
  line.strict = take_flag(words, "strict");
  line.turn_over = take_flag(words, "turn");
  line.limiter = only(words);
  return line;
}

MemberId Transcript::member(const std::string& name) {
  return members_.try_emplace(name, members_.size() + 1).first->second;
}

std::string Transcript::name_of(MemberId id) const {
  const auto found = std::find_if(members_.begin(), members_.end(), [&](const auto& m) { return m.second == id; });
  return found == members_.end() ? "nobody" : found->first;
}

Position Transcript::position(const std::string& label) const {
  if (label == "none") return kNowhere;
  const auto known = labels_.find(label);
  if (known == labels_.end()) throw std::invalid_argument("no record is called " + label);
  return known->second;
}

std::string Transcript::holders(const std::string& name) const {
  const auto limiter = state_.limiters.find(name);
  if (limiter == state_.limiters.end()) return name + " is not known";
  std::string all;
  for (const auto& [id, holding] : limiter->second.holdings) {
    if (holding.held() > 0) all += (all.empty() ? "" : ", ") + name_of(id) + " " + std::to_string(holding.held());
  }
  return name + " " + std::to_string(limiter->second.limit()) + ": " + (all.empty() ? "nobody" : all);
}

std::optional<std::string> Transcript::expect(const std::string& text) {
  const auto compare = [&](const std::string& is) {
    return is == text ? std::nullopt : std::optional("is not so, but: " + is);
  };
  const auto words = split(text);
  if (text.starts_with("reserve of ")) {
    const std::string name = words.at(2).substr(0, words.at(2).size() - 1);
    std::string all;
    for (const auto& [who, id] : members_) {
      if (const Count reserved = state_.reserved(name, id); reserved > 0)
        all += (all.empty() ? "" : ", ") + who + " " + std::to_string(reserved);
    }
    return compare("reserve of " + name + ": " + (all.empty() ? "nobody" : all));
  }
  if (text.ends_with(" is not known")) return compare(holders(words.at(0)));
  const auto last = [&] { return words.back(); };
  if (text.find(": ") != std::string::npos) return compare(holders(words.at(0)));
  if (text.find(" belongs to ") != std::string::npos) {
    const auto entry = state_.partitions.find(partition(words));
    const bool owned = entry != state_.partitions.end() && state_.members.contains(entry->second.owner);
    return compare(text.substr(0, text.find(" belongs to ")) + " belongs to " +
                   (owned ? name_of(entry->second.owner) : "nobody"));
  }
  if (words.at(0) == "members") {
    std::string all;
    for (const auto& [id, entry] : state_.members) all += (all.empty() ? " " : ", ") + name_of(id);
    return compare("members" + all);
  }
  if (words.at(0) == "version") return compare("version " + std::to_string(state_.version));
  if (text.ends_with(" ends")) {
    return effects_.ended == member(words.at(0)) ? std::nullopt : std::optional<std::string>("does not");
  }
  if (text.ends_with(" is fenced")) {
    const bool is = std::count(effects_.reclaimed.begin(), effects_.reclaimed.end(), member(words.at(0))) > 0;
    return is ? std::nullopt : std::optional<std::string>("is not");
  }
  if (last() == "drains" || text.ends_with(" does not drain")) {
    const auto entry = state_.members.find(member(words.at(0)));
    if (entry == state_.members.end()) return words.at(0) + " is not there";
    return compare(words.at(0) + (entry->second.draining ? " drains" : " does not drain"));
  }
  return compare(std::string(to_text(effects_.outcome)));
}

}  // namespace turnstile::simulation
