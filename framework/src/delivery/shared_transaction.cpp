#include "delivery/shared_transaction.hpp"

#include <algorithm>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "delivery/timed.hpp"
#include "delivery/transactional_run.hpp"
#include "support/failpoint.hpp"

namespace turnstile::detail {

namespace {

using Kind = Failure::Kind;

/// A unit in the transaction.
struct Part {
  explicit Part(Unit& unit) : run(unit), items(run.admit()) {}
  TransactionalRun run;
  Items items;
};

class SharedTransaction {
 public:
  explicit SharedTransaction(std::span<Unit* const> units) {
    for (Unit* const unit : units) {
      const Items& items = parts_.emplace_back(*unit).items;
      if (items.empty()) parts_.pop_back();
      else all_.insert(all_.end(), items.begin(), items.end());
    }
  }

  /// False: each unit must run by itself.
  bool run() {
    // A record that came back for a stored retry must not share a transaction with another record of its message.
    const bool is_any_back =
        std::any_of(all_.begin(), all_.end(), [](const UnitItem* item) { return item->back.has_value(); });
    if (parts_.size() < 2 || is_any_back || must_any_run_alone()) return false;
    for (Part& part : parts_) part.run.prepare(part.items);
    const auto failure = transact();
    if (!failure) return true;
    session().rollback();
    if (failure->kind == Kind::unavailable && failure->by_handler) count_lost(*failure);
    return is_over(*failure);
  }

  void run_apart() {
    for (Part& part : parts_) part.run.run_apart(std::move(part.items));
  }

 private:
  std::optional<Failure> transact() {
    if (auto failure = begin()) return failure;
    TransactionalRun::Place place{all_};
    bool must_commit = false;
    for (Part& part : parts_) {
      if (unit().is_over()) return Failure{.kind = Kind::cancelled};
      running_ = &part;
      if (auto failure = part.run.run_in(place, part.items)) return failure;
      place.first += part.items.size();
      must_commit = must_commit || part.run.must_commit();
    }
    running_ = nullptr;
    if (must_commit) return commit();
    session().rollback();
    settle();
    return std::nullopt;
  }

  std::optional<Failure> begin() {
    const Timed timed(unit().result().counts.claim_time);
    Spans spans(parts_, SpanReport::Step::claim);
    std::vector<std::vector<ports::InboxEntry>> entries;
    std::vector<ports::InboxShare> shares;
    for (const Part& part : parts_) {
      const auto& of_part = entries.emplace_back(part.run.unit().entries(part.items));
      shares.push_back({*part.run.unit().place().fence, of_part});
    }
    auto scope = unit().scope();
    scope.fence.reset();
    auto failure = guarded([&] {
      const auto admissions = session().begin_shared(scope, shares);
      for (std::size_t k = 0; k < all_.size(); ++k) all_[k]->admission = admissions[k];
    });
    if (failure) spans.failed(failure->why);
    parts_.front().run.verdicts().taken_in(all_, failure);
    return failure;
  }

  std::optional<Failure> commit() {
    if (auto failure = parts_.front().run.why_no_commit(parts_.front().items)) return failure;
    std::optional<std::string> in_doubt;
    auto failure = guarded(all_, nullptr, [&] {
      const Timed timed(unit().result().counts.commit_time);
      for (Part& part : parts_) part.run.write_retries(part.items);
      Spans spans(parts_, SpanReport::Step::commit);
      try {
        session().commit();
      } catch (const CommitInDoubt& e) {
        in_doubt = e.what();
        spans.failed(*in_doubt);
      }
    });
    if (in_doubt) return decide_doubt(*in_doubt);
    if (failure) failure->by_handler = is_by_handler(*failure, session().standing());
    for (Part& part : parts_) part.run.ring(part.items, !failure);
    TURNSTILE_FAILPOINT("after-commit");
    if (!failure) settle();
    return failure;
  }

  void settle() {
    for (Part& part : parts_) part.run.verdicts().committed(part.items);
  }

  /// Absent: all parts are over. Otherwise, the parts that are left run by themselves: if the doubt is the work of one of
  /// them, it counts as a failed attempt in the end, and does not come back to the others.
  std::optional<Failure> decide_doubt(const std::string& why) {
    std::optional<Failure> left;
    for (Part& part : parts_) {
      const auto failure = part.run.decide_doubt(part.items, why);
      if (failure && failure->kind != Kind::unavailable) {
        part.run.unit().result().counts.rerun += static_cast<std::int64_t>(part.run.handled());
        left = failure;
        continue;
      }
      if (failure) {
        part.run.count_tries(part.items);
        part.run.unit().end(UnitResult::End::store_unavailable, failure->why);
      } else {
        part.run.verdicts().committed(part.items);
      }
      part.items.clear();
    }
    return left;
  }

  /// Whether no unit may run again by itself now. Messages without a verdict wait at their places.
  bool is_over(const Failure& failure) {
    switch (failure.kind) {
      case Kind::cancelled: return true;
      case Kind::broken:
        unit().end(UnitResult::End::broken,
                   unit().describe(parts_.front().items) + " and other partitions: " + failure.why);
        return true;
      case Kind::unavailable:
        if (failure.by_handler) return false;
        for (Part& part : parts_) part.run.unit().end(UnitResult::End::store_unavailable, failure.why);
        return true;
      case Kind::failed: count_reruns(); return false;
      case Kind::busy:
      case Kind::fenced: return false;
    }
    return false;
  }

  [[nodiscard]] bool must_any_run_alone() const {
    return std::any_of(parts_.begin(), parts_.end(), [](const Part& part) {
      return std::any_of(part.items.begin(), part.items.end(),
                         [&](const UnitItem* item) { return part.run.must_run_alone(*item); });
    });
  }

  /// If a message has brought the store down, no part can run by itself now, and count it.
  void count_lost(const Failure& failure) {
    if (running_ == nullptr) {
      for (Part& part : parts_) part.run.count_tries(part.items);
    } else {
      running_->run.count_tries(failure.culprit != nullptr ? Items{failure.culprit} : running_->items);
    }
  }

  void count_reruns() {
    for (Part& part : parts_) {
      const auto handled = static_cast<std::int64_t>(part.run.handled());
      // The message that failed is not run again because of another one.
      part.run.unit().result().counts.rerun += &part == running_ && handled > 0 ? handled - 1 : handled;
    }
  }

  /// A step of all units, in the traces of each.
  class Spans {
   public:
    Spans(const std::deque<Part>& parts, SpanReport::Step step) {
      for (const Part& part : parts) spans_.emplace_back(part.run.unit().trace(), step);
    }
    void failed(const std::string& why) {
      for (auto& span : spans_) span.failed(why);
    }

   private:
    std::deque<UnitTrace::Span> spans_;
  };

  [[nodiscard]] Unit& unit() const noexcept { return parts_.front().run.unit(); }
  [[nodiscard]] ports::InboxSession& session() const noexcept { return unit().session(); }

  std::deque<Part> parts_;  // not empty while one of the functions above runs
  Items all_;               // in the order of the parts
  Part* running_ = nullptr;
};

}  // namespace

void run_shared(std::span<Unit* const> units) {
  SharedTransaction shared(units);
  if (!shared.run()) shared.run_apart();
}

}  // namespace turnstile::detail
