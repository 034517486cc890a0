#include "inbox/claims.hpp"

#include <algorithm>
#include <atomic>
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

/// A call that finds out costs as much as two, and a connection.
constexpr int kContendedCalls = 100;
/// The fence of a message's first claim.
constexpr std::int64_t kFirstFence = 1;

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
  using Order = std::vector<std::uint32_t>;
  [[nodiscard]] const Statements& sql() const { return shared_->statements; }
  std::vector<Result> call(const Fill& fill) { return postgres::call(*shared_, shared_->handlers, fill); }
  struct Taken {
    bool all_are_new;
    std::vector<Result> rows;
  };
  Taken take(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries, const Order& order);
  void add_scope(ArgumentBlock& to, const ports::ClaimScope& scope);
  template <class ClaimAt>
  static void add_held(Pipeline& pipeline, HandlerId handler, const MessageId& owner, std::size_t count,
                       ClaimAt claim_at);
  void add_ends(Pipeline& pipeline, HandlerId handler, const MessageId& owner, std::span<const ports::ClaimEnd> ends,
                const Order& places, ports::ClaimEnd::Kind kind, const std::string& end_claims);

  std::shared_ptr<Shared> shared_;
  std::atomic<int> contended_calls_ = 0;  // that expect some of their messages to have a row
};

void PostgresClaims::add_scope(ArgumentBlock& to, const ports::ClaimScope& scope) {
  to.add_int(scope.lock_timeout.count());
  to.add_int(std::max(scope.lock_timeout, shared_->settings.lock_timeout).count());
  to.add_int(scope.handler.value);
  to.add_int(scope.fence ? scope.fence->slot : 0);
  add_epoch(to, scope.fence);
}

/// The rows of the claims, if some existed before, and those of the messages that are done.
PostgresClaims::Taken PostgresClaims::take(const ports::ClaimScope& scope, std::span<const ports::InboxEntry> entries,
                                           const Order& order) {
  const auto at = [&](std::size_t i) -> const ports::InboxEntry& { return entries[order[i]]; };
  const auto is_in_doubt = [](const ports::InboxEntry& entry) { return entry.in_doubt; };
  const bool some_in_doubt = std::any_of(entries.begin(), entries.end(), is_in_doubt);
  const Statements::TakeClaims& statements = scope.fence ? sql().take_claims : sql().take_free_claims;
  const auto add_entries = [&](ArgumentBlock& to) {
    add_uuid_array(to, order.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
    add_int8_array(to, order.size(), [&](std::size_t i) { return std::optional(at(i).offset); });
    add_int8_array(to, order.size(), [&](std::size_t i) { return at(i).fingerprint; });
  };
  const auto add_new = [&](Pipeline& pipeline) {
    ArgumentBlock& to = pipeline.arguments();
    add_scope(to, scope);
    add_entries(to);
    add_uuid(to, scope.owner);
    to.add_int(scope.lease.count());
    to.add_text(scope.begins ? "t" : "f");
    pipeline.add(statements.new_ones, kCaller, Pipeline::Keep::binary);
  };
  const auto add_any = [&](Pipeline& pipeline) {
    std::vector<MessageId> owners{scope.owner};
    owners.insert(owners.end(), scope.abandoned.begin(), scope.abandoned.end());
    ArgumentBlock& to = pipeline.arguments();
    add_scope(to, scope);
    add_entries(to);
    add_uuid_array(to, owners.size(), [&](std::size_t i) -> const MessageId& { return owners[i]; });
    to.add_int(scope.lease.count());
    to.add_text(scope.rerun_unknown ? "t" : "f");
    if (some_in_doubt) {
      add_int8_array(to, order.size(),
                     [&](std::size_t i) { return std::optional<std::int64_t>(at(i).in_doubt ? 1 : 0); });
    } else {
      to.add_null(0);
    }
    to.add_text(scope.begins ? "t" : "f");
    pipeline.add(statements.any, kCaller, Pipeline::Keep::binary);
  };
  const auto take_with = [&](const Fill& add_claims) {
    return call([&](Pipeline& pipeline) {
      pipeline.add(sql().begin, kCaller);
      pipeline.add(sql().find_by_index, kCaller);
      add_claims(pipeline);
      pipeline.arguments().add_int(scope.handler.value);
      add_uuid_array(pipeline.arguments(), order.size(), [&](std::size_t i) -> const MessageId& { return at(i).id; });
      add_uuid(pipeline.arguments(), scope.owner);
      pipeline.add(sql().drop_done_claims, kCaller, Pipeline::Keep::binary);
      pipeline.add("COMMIT", kCaller);
    });
  };
  if (order.size() > 1 && !some_in_doubt && scope.abandoned.empty()) {
    if (contended_calls_.load(std::memory_order_relaxed) <= 0) {
      try {
        return {true, take_with(add_new)};
      } catch (const StoreFailed& failed) {
        if (failed.sqlstate != kUniqueViolation) throw;
        contended_calls_ = kContendedCalls;
      }
    } else {
      --contended_calls_;
    }
  }
  return {false, take_with(add_any)};
}

std::vector<ports::Claim> PostgresClaims::claim(const ports::ClaimScope& scope,
                                                std::span<const ports::InboxEntry> entries) {
  Order order;
  sort_distinct(entries, order);
  const Taken kept = take(scope, entries, order);
  const PGresult* taken = kept.rows[0].get();
  if (PQntuples(taken) == 0) throw_fenced(*scope.fence);
  std::vector<ports::Claim> claims(entries.size(), ports::Claim{.state = ports::Claim::State::repeated});
  for (const std::uint32_t i : order) {
    claims[i].state = kept.all_are_new ? ports::Claim::State::claimed : ports::Claim::State::running;
    if (kept.all_are_new) claims[i].fence = kFirstFence;
  }
  const auto id_of = [&](std::uint32_t entry) -> const MessageId& { return entries[entry].id; };
  PlaceOfId place_of_taken(order, id_of);
  for (int row = 0; row < (kept.all_are_new ? 0 : PQntuples(taken)); ++row) {
    if (PQgetisnull(taken, row, 0)) continue;
    const std::uint32_t i = place_of_taken(id_in(taken, row));
    const std::string_view state = bytes_in(taken, row, 1);
    claims[i].fence = int64_in(taken, row, 2);
    if (state == "claimed") claims[i].state = ports::Claim::State::claimed;
    else if (state == "parked") claims[i].state = ports::Claim::State::parked;
    if (!PQgetisnull(taken, row, 4)) claims[i].left = milliseconds(int64_in(taken, row, 4));
    if (!PQgetisnull(taken, row, 5)) claims[i].is_copy = bytes_in(taken, row, 5)[0] != 0;
    if (other_body(taken, row, 3, entries[i])) claims[i].state = ports::Claim::State::mismatch;
  }
  const PGresult* done = kept.rows[1].get();
  PlaceOfId place_of_done(order, id_of);
  for (int row = 0; row < PQntuples(done); ++row) {
    const std::uint32_t i = place_of_done(id_in(done, row));
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
                              std::span<const ports::ClaimEnd> ends, const Order& places, ports::ClaimEnd::Kind kind,
                              const std::string& end_claims) {
  add_held(pipeline, handler, owner, places.size(),
           [&](std::size_t i) -> const ports::HeldClaim& { return ends[places[i]].claim; });
  ArgumentBlock& to = pipeline.arguments();
  if (kind == ports::ClaimEnd::Kind::done) {
    const auto response_of = [&](std::uint32_t place) -> std::optional<std::string_view> {
      return ends[place].response;
    };
    if (std::any_of(places.begin(), places.end(), [&](std::uint32_t place) { return response_of(place).has_value(); }))
      add_bytea_array(to, places.size(), [&](std::size_t i) { return response_of(places[i]); });
    else to.add_null(0);
    pipeline.add(end_claims, kCaller, Pipeline::Keep::binary);
  } else if (kind == ports::ClaimEnd::Kind::failed) {
    std::vector<std::string> errors;
    for (const std::uint32_t place : places) errors.push_back(printable(ends[place].error));
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
  const auto id_of = [&](std::uint32_t place) -> const MessageId& { return ends[place].claim.id; };
  Order order;
  sort_by_id(ends.size(), id_of, order);
  std::map<ports::ClaimEnd::Kind, Order> by_kind;
  for (const std::uint32_t place : order) by_kind[ends[place].kind].push_back(place);
  const auto note = [&](const std::vector<Result>& kept) {
    auto rows = kept.begin();
    for (const auto& [kind, places] : by_kind) {
      const PGresult* answer = (rows++)->get();
      const bool all_were_held = PQntuples(answer) == 1 && PQgetisnull(answer, 0, 0) != 0;
      if (all_were_held) {
        for (const std::uint32_t place : places) held[place] = true;
        continue;
      }
      PlaceOfId place_of(places, id_of);
      for (int row = 0; row < PQntuples(answer); ++row) held[place_of(id_in(answer, row))] = true;
    }
  };
  const auto add_all = [&](Pipeline& pipeline, const std::string& end_claims) {
    pipeline.add(sql().find_by_index, kCaller);
    for (const auto& [kind, places] : by_kind) add_ends(pipeline, handler, owner, ends, places, kind, end_claims);
  };
  const auto end_with = [&](const std::string& end_claims) {
    note(call([&](Pipeline& pipeline) {
      pipeline.add(sql().begin, kCaller);
      add_all(pipeline, end_claims);
      pipeline.add("COMMIT", kCaller);
    }));
  };
  if (std::all_of(ends.begin(), ends.end(), [](const ports::ClaimEnd& end) { return end.messages.empty(); })) {
    try {
      end_with(sql().end_claims);
    } catch (const StoreFailed& failed) {
      if (failed.sqlstate != kUniqueViolation) throw;
      end_with(sql().end_claims_contended);
    }
    return held;
  }
  // Messages may be published only for claims that are still held, so that must be known first.
  Session session(shared_);
  session.begin({.handler = handler, .lock_timeout = shared_->settings.lock_timeout}, {});
  note(session.run_own([&](Pipeline& pipeline) { add_all(pipeline, sql().end_claims_contended); }));
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
