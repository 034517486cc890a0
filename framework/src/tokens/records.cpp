#include "tokens/records.hpp"

#include <utility>

namespace turnstile::tokens {

namespace {

/// More than the numbers of a line or a claim have on the wire.
constexpr std::size_t kNumbers = 160;

std::size_t size_of(const Partition& partition) {
  return kNumbers + partition.topic.size() + partition.group.size() + partition.store.size();
}
std::size_t size_of(const Line& line) { return kNumbers + line.limiter.size(); }
std::size_t size_of(const PartitionsClaimed::Claim& claim) { return size_of(claim.partition); }

/// `all` in pieces of at most kFullRecord bytes. At least one, which may be empty.
template <class Item>
std::vector<std::vector<Item>> pieces_of(std::vector<Item> all) {
  std::size_t total = 0;
  for (const Item& item : all) total += size_of(item);
  std::vector<std::vector<Item>> pieces(1);
  if (total <= kFullRecord) {
    pieces.front() = std::move(all);
    return pieces;
  }
  std::size_t size = 0;
  for (Item& item : all) {
    size += size_of(item);
    if (size > kFullRecord) {
      pieces.emplace_back();
      size = size_of(item);
    }
    pieces.back().push_back(std::move(item));
  }
  return pieces;
}

}  // namespace

std::vector<Body> in_records(Body body) {
  std::vector<Body> bodies;
  if (auto* keep = std::get_if<Keep>(&body)) {
    for (auto& lines : pieces_of(std::move(keep->lines)))
      bodies.emplace_back(Keep{.lines = std::move(lines), .checkpoint = {}});
    std::get<Keep>(bodies.back()).checkpoint = keep->checkpoint;
  } else if (auto* claimed = std::get_if<PartitionsClaimed>(&body)) {
    for (auto& claims : pieces_of(std::move(claimed->claims)))
      bodies.emplace_back(PartitionsClaimed{.claims = std::move(claims)});
  } else if (auto* revoked = std::get_if<PartitionsRevoked>(&body)) {
    for (auto& partitions : pieces_of(std::move(revoked->partitions)))
      bodies.emplace_back(PartitionsRevoked{.partitions = std::move(partitions)});
  } else {
    bodies.push_back(std::move(body));
  }
  return bodies;
}

}  // namespace turnstile::tokens
