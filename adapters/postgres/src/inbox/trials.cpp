#include "inbox/trials.hpp"

#include "inbox/calls.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

void add_offsets(ArgumentBlock& to, std::span<const Offset> offsets) {
  add_int8_array(to, offsets.size(), [&](std::size_t i) { return std::optional(offsets[i]); });
}

class PostgresTrials final : public ports::Trials {
 public:
  explicit PostgresTrials(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<ports::Suspect> take_over(const Fence& fence, Offset first) override {
    const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      add_fence(pipeline, fence);
      pipeline.arguments().add_int(first);
      pipeline.add(sql().blame, kCaller, Pipeline::Keep::text);
      pipeline.arguments().add_int(fence.slot);
      pipeline.add(sql().suspects, kCaller, Pipeline::Keep::text);
    });
    if (PQntuples(kept[0].get()) == 0) throw_fenced(fence);
    std::vector<ports::Suspect> suspects;
    for (int row = 0; row < PQntuples(kept[1].get()); ++row)
      suspects.push_back({number_at(kept[1], row, 0), static_cast<int>(number_at(kept[1], row, 1))});
    return suspects;
  }

  void begin(const Fence& fence, std::span<const Offset> offsets, bool alone) override {
    const auto kept = call(Durable::yes, [&](Pipeline& pipeline) {
      add_fence(pipeline, fence);
      add_offsets(pipeline.arguments(), offsets);
      pipeline.arguments().add_text(alone ? "t" : "f");
      pipeline.add(sql().begin_trial, kCaller, Pipeline::Keep::text);
    });
    if (PQntuples(kept[0].get()) == 0) throw_fenced(fence);
  }

  void end(const Fence& fence, std::span<const Offset> offsets, std::span<const Offset> settled) override {
    call(Durable::no, [&](Pipeline& pipeline) {
      for (const std::string* const statement : {&sql().end_trial, &sql().end_outlasting}) {
        add_fence(pipeline, fence);
        add_offsets(pipeline.arguments(), offsets);
        add_offsets(pipeline.arguments(), settled);
        pipeline.add(*statement, kCaller);
      }
    });
  }

  void release(std::span<const Release> partitions) override {
    std::vector<Fence> all, proved;
    for (const Release& release : partitions) {
      all.push_back(release.fence);
      if (release.is_proved) proved.push_back(release.fence);
    }
    if (all.empty()) return;
    call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      add_fences(pipeline, all);
      add_int8_array(pipeline.arguments(), partitions.size(), [&](std::size_t i) -> std::optional<std::int64_t> {
        if (!partitions[i].runs_for) return std::nullopt;
        return partitions[i].runs_for->count();
      });
      pipeline.add(sql().give_up, kCaller);
    });
    if (proved.empty()) return;
    // By itself: it waits for the transaction of a handler that still runs, and fails if that takes long.
    call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      add_fences(pipeline, proved);
      pipeline.add(sql().release, kCaller);
    });
  }

 private:
  [[nodiscard]] const Statements& sql() const { return shared_->statements; }
  static void add_fence(Pipeline& pipeline, const Fence& fence) {
    pipeline.arguments().add_int(fence.slot);
    pipeline.arguments().add_int(fence.epoch.value);
    pipeline.arguments().add_int(fence.history);
  }
  static void add_fences(Pipeline& pipeline, std::span<const Fence> fences) {
    ArgumentBlock& to = pipeline.arguments();
    add_int8_array(to, fences.size(), [&](std::size_t i) { return std::optional<std::int64_t>(fences[i].slot); });
    add_int8_array(to, fences.size(), [&](std::size_t i) { return std::optional(fences[i].epoch.value); });
    add_int8_array(to, fences.size(), [&](std::size_t i) { return std::optional(fences[i].history); });
  }
  enum class Durable : bool { no, yes };
  /// On the connections of transactions: the caller is about to open one, or has ended one. A message that takes the
  /// memory of the machine can end this process and one of the server's, so the record that it begins waits for the
  /// disk. If a crash of the server loses the end, a message that has ended is a suspect.
  std::vector<Result> call(Durable durable, const Fill& fill) {
    return postgres::call(*shared_, shared_->handlers, [&](Pipeline& pipeline) {
      pipeline.add(sql().begin, kCaller);
      if (durable == Durable::no) pipeline.add("SET LOCAL synchronous_commit = off", kCaller);
      fill(pipeline);
      pipeline.add("COMMIT", kCaller);
    });
  }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::shared_ptr<ports::Trials> open_trials(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresTrials>(std::move(shared));
}

}  // namespace turnstile::postgres
