#include "inbox/claims.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "inbox/calls.hpp"
#include "inbox/outbox.hpp"
#include "turnstile/error.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/entries.hpp"
#include "wire/errors.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

using std::chrono::milliseconds;

bool other_body(const PGresult* rows, int row, int column, const ports::InboxEntry& entry) {
  return !PQgetisnull(rows, row, column) && entry.differs_from(int64_in(rows, row, column));
}

class PostgresClaims final : public ports::Claims {
 public:
  explicit PostgresClaims(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<ports::Claim> claim(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries) override;
  std::vector<bool> begin(HandlerId handler, const MessageId& owner, std::span<const ports::HeldClaim> held) override;
  std::vector<bool> end(HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends) override;
  std::vector<bool> renew(HandlerId handler, const MessageId& owner, milliseconds lease,
                          std::span<const ports::HeldClaim> held) override;
  ports::ClaimCounts count(std::optional<HandlerId> handler) override;

 private:
  using Places = std::vector<std::size_t>;
  [[nodiscard]] const Statements& sql() const { return shared_->statements; }
  std::vector<Result> call(const Fill& fill) { return postgres::call(*shared_, shared_->handlers, fill); }
  void add_claim(Pipeline& pipeline, const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries,
                 const std::vector<std::uint32_t>& order);
  template <class ClaimAt>
  static void add_held(Pipeline& pipeline, HandlerId handler, const MessageId& owner, std::size_t count,
                       ClaimAt claim_at);
  void add_ends(Pipeline& pipeline, HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends,
                const Places& places, ports::ClaimEnd::Kind kind);

  std::shared_ptr<Shared> shared_;
};

void PostgresClaims::add_claim(Pipeline& pipeline, const ports::ClaimScope& scope,
                               std::span<const ports::InboxEntry> entries, const std::vector<std::uint32_t>& order) {
  const auto at = [&](std::size_t i) -> const ports::InboxEntry& { return entries[order[i]]; };
  std::vector<MessageId> owners{scope.owner};
  owners.insert(owners.end(), scope.abandoned.begin(), scope.abandoned.end());
  ArgumentBlock& to = pipeline.arguments();
  to.add_int(scope.lock_timeout.count());
  to.add_int(std::max(scope.lock_timeout, shared_->settings.lock_timeout).count());
  to.add_int(scope.handler.value);
  to.add_int(scope.fence ? scope.fence->slot : 0);
  add_epoch(to, scope.fence);
  add_uuid_array(to, order.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
  add_int8_array(to, order.size(), [&](std::size_t i) { return std::optional(at(i).offset); });
  add_int8_array(to, order.size(), [&](std::size_t i) { return at(i).fingerprint; });
  add_uuid_array(to, owners.size(), [&](std::size_t i) -> const MessageId& { return owners[i]; });
  to.add_int(scope.lease.count());
  to.add_text(scope.rerun_unknown ? "t" : "f");
  if (std::any_of(entries.begin(), entries.end(), [](const ports::InboxEntry& entry) { return entry.in_doubt; })) {
    add_int8_array(to, order.size(),
                   [&](std::size_t i) { return std::optional<std::int64_t>(at(i).in_doubt ? 1 : 0); });
  } else {
    to.add_null(0);
  }
  to.add_text(scope.begins ? "t" : "f");
  pipeline.add(scope.fence ? sql().take_claims : sql().take_free_claims, kCaller, Pipeline::Keep::binary);
  to.add_int(scope.handler.value);
  add_uuid_array(to, order.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
  add_uuid(to, scope.owner);
  pipeline.add(sql().drop_done_claims, kCaller, Pipeline::Keep::binary);
}

std::vector<ports::Claim> PostgresClaims::claim(const ports::ClaimScope& scope,
                                                std::span<const ports::InboxEntry> entries) {
  std::vector<std::uint32_t> order;
  sort_distinct(entries, order);
  const auto kept = call([&](Pipeline& pipeline) {
    pipeline.add(sql().begin, kCaller);
    pipeline.add(sql().find_by_index, kCaller);
    add_claim(pipeline, scope, entries, order);
    pipeline.add("COMMIT", kCaller);
  });

  const PGresult* taken = kept[0].get();
  if (PQntuples(taken) == 0) throw_fenced(*scope.fence);
  std::vector<ports::Claim> claims(entries.size(), ports::Claim{.state = ports::Claim::State::repeated});
  std::map<MessageId, std::uint32_t> first;
  for (const std::uint32_t i : order) {
    first.emplace(entries[i].id, i);
    claims[i].state = ports::Claim::State::running;
  }
  for (int row = 0; row < PQntuples(taken); ++row) {
    if (PQgetisnull(taken, row, 0)) continue;
    const std::uint32_t i = first.at(id_in(taken, row));
    const std::string_view state = bytes_in(taken, row, 1);
    claims[i].fence = int64_in(taken, row, 2);
    if (state == "claimed") claims[i].state = ports::Claim::State::claimed;
    else if (state == "parked") claims[i].state = ports::Claim::State::parked;
    if (!PQgetisnull(taken, row, 4)) claims[i].left = milliseconds(int64_in(taken, row, 4));
    if (!PQgetisnull(taken, row, 5)) claims[i].is_copy = bytes_in(taken, row, 5)[0] != 0;
    if (other_body(taken, row, 3, entries[i])) claims[i].state = ports::Claim::State::mismatch;
  }
  const PGresult* done = kept[1].get();
  for (int row = 0; row < PQntuples(done); ++row) {
    const std::uint32_t i = first.at(id_in(done, row));
    claims[i].state = other_body(done, row, 1, entries[i]) ? ports::Claim::State::mismatch : ports::Claim::State::done;
  }
  return claims;
}

template <class ClaimAt>
void PostgresClaims::add_held(Pipeline& pipeline, HandlerId handler, const MessageId& owner, std::size_t count,
                              ClaimAt claim_at) {
  ArgumentBlock& to = pipeline.arguments();
  to.add_int(handler.value);
  add_uuid_array(to, count, [&](std::size_t i) -> const MessageId& { return claim_at(i).id; });
  add_int8_array(to, count, [&](std::size_t i) { return std::optional(claim_at(i).fence); });
  add_uuid(to, owner);
}

void PostgresClaims::add_ends(Pipeline& pipeline, HandlerId handler, const MessageId& owner,
                              std::span<const ports::ClaimEnd> ends, const Places& places, ports::ClaimEnd::Kind kind) {
  add_held(pipeline, handler, owner, places.size(),
           [&](std::size_t i) -> const ports::HeldClaim& { return ends[places[i]].claim; });
  ArgumentBlock& to = pipeline.arguments();
  if (kind == ports::ClaimEnd::Kind::done) {
    add_bytea_array(to, places.size(),
                    [&](std::size_t i) -> std::optional<std::string_view> { return ends[places[i]].response; });
    pipeline.add(sql().end_claims, kCaller, Pipeline::Keep::binary);
  } else if (kind == ports::ClaimEnd::Kind::failed) {
    std::vector<std::string> errors;
    for (const std::size_t place : places) errors.push_back(printable(ends[place].error));
    to.add(Param(errors));
    pipeline.add(sql().fail_claims, kCaller, Pipeline::Keep::binary);
  } else {
    pipeline.add(sql().give_claims_back, kCaller, Pipeline::Keep::binary);
  }
}

std::vector<bool> held_among(const PGresult* rows, std::span<const ports::HeldClaim> asked) {
  std::vector<MessageId> ids;
  for (int row = 0; row < PQntuples(rows); ++row) ids.push_back(id_in(rows, row));
  std::sort(ids.begin(), ids.end());
  std::vector<bool> held;
  for (const ports::HeldClaim& claim : asked) held.push_back(std::binary_search(ids.begin(), ids.end(), claim.id));
  return held;
}

std::vector<bool> PostgresClaims::begin(HandlerId handler, const MessageId& owner,
                                        std::span<const ports::HeldClaim> held) {
  if (held.empty()) return {};
  const auto kept = call([&](Pipeline& pipeline) {
    pipeline.add(sql().begin, kCaller);
    // The record must survive this process. After a crash of the server, a record of a claim that has not begun is
    // ignored (unbegun_in).
    pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
    add_held(pipeline, handler, owner, held.size(), [&](std::size_t i) -> const ports::HeldClaim& { return held[i]; });
    pipeline.add(sql().begin_claims, kCaller, Pipeline::Keep::binary);
    pipeline.add("COMMIT", kCaller);
  });
  return held_among(kept[0].get(), held);
}

std::vector<bool> PostgresClaims::end(HandlerId handler, const MessageId& owner,
                                      std::span<const ports::ClaimEnd> ends) {
  std::vector<bool> held(ends.size(), false);
  if (ends.empty()) return held;
  std::map<MessageId, std::size_t> place_of;
  std::map<ports::ClaimEnd::Kind, Places> by_kind;
  bool publishes = false;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    place_of[ends[i].claim.id] = i;
    by_kind[ends[i].kind].push_back(i);
    publishes = publishes || !ends[i].messages.empty();
  }
  const auto note = [&](const std::vector<Result>& kept) {
    for (const Result& rows : kept) {
      for (int row = 0; row < PQntuples(rows.get()); ++row) held[place_of.at(id_in(rows.get(), row))] = true;
    }
  };
  const auto add_all = [&](Pipeline& pipeline) {
    for (const auto& [kind, places] : by_kind) add_ends(pipeline, handler, owner, ends, places, kind);
  };
  if (!publishes) {
    note(call([&](Pipeline& pipeline) {
      pipeline.add(sql().begin, kCaller);
      add_all(pipeline);
      pipeline.add("COMMIT", kCaller);
    }));
    return held;
  }
  // Messages may be published only for claims that are still held, so that must be known first.
  Session session(shared_);
  session.begin({.handler = handler, .lock_timeout = shared_->settings.lock_timeout}, {});
  note(session.run_own(add_all));
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (!held[i]) continue;
    for (const auto& [message, id] : ends[i].messages) session.publish(message, id);
  }
  try {
    session.commit();
  } catch (const CommitInDoubt& e) {
    throw StoreUnavailable(e.what());
  }
  return held;
}

std::vector<bool> PostgresClaims::renew(HandlerId handler, const MessageId& owner, milliseconds lease,
                                        std::span<const ports::HeldClaim> held) {
  if (held.empty()) return {};
  // On the connections of the store's own calls: all connections of the workers may be waiting.
  const auto kept = postgres::call(*shared_, [&](Pipeline& pipeline) {
    add_held(pipeline, handler, owner, held.size(), [&](std::size_t i) -> const ports::HeldClaim& { return held[i]; });
    pipeline.arguments().add_int(lease.count());
    pipeline.add(sql().renew_claims, kCaller, Pipeline::Keep::binary);
  });
  return held_among(kept[0].get(), held);
}

ports::ClaimCounts PostgresClaims::count(std::optional<HandlerId> handler) {
  const auto kept = postgres::call(*shared_, [&](Pipeline& pipeline) {
    pipeline.arguments().add(handler ? Param(std::int64_t{handler->value}) : Param(nullptr));
    pipeline.add(sql().count_claims, kCaller, Pipeline::Keep::binary);
  });
  const PGresult* row = kept[0].get();
  return {int64_in(row, 0, 0), int64_in(row, 0, 1), int64_in(row, 0, 2), int64_in(row, 0, 3)};
}

}  // namespace

std::shared_ptr<ports::Claims> open_claims(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresClaims>(std::move(shared));
}

}  // namespace turnstile::postgres
