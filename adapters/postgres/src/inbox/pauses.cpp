#include "inbox/pauses.hpp"

#include "inbox/calls.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text.hpp"
#include "wire/text_rows.hpp"

namespace turnstile::postgres {

namespace {

Timestamp time_in(const PGresult* rows, int row, int column) {
  return Timestamp{std::chrono::milliseconds(int64_in(rows, row, column))};
}

ports::Pause pause_in(const PGresult* rows, int row) {
  ports::Pause pause;
  pause.part.topic = bytes_in(rows, row, 0);
  if (!PQgetisnull(rows, row, 1)) pause.part.partition = static_cast<std::int32_t>(int64_in(rows, row, 1));
  if (!PQgetisnull(rows, row, 2)) pause.part.key = bytes_in(rows, row, 2);
  pause.part.breaker_of = bytes_in(rows, row, 3);
  pause.by = bytes_in(rows, row, 4);
  pause.why = bytes_in(rows, row, 5);
  pause.since = time_in(rows, row, 6);
  if (!PQgetisnull(rows, row, 7)) {
    pause.until = time_in(rows, row, 7);
    pause.left = std::chrono::milliseconds(int64_in(rows, row, 8));
  }
  return pause;
}

void add_part(ArgumentBlock& to, const ports::PausedPart& part) {
  to.add_text(printable(part.topic));
  if (part.partition) to.add_int(*part.partition);
  else to.add_null(0);
  add_bytea(to, part.key);
  to.add_text(printable(part.breaker_of));
}

class PostgresPauses final : public ports::Pauses {
 public:
  explicit PostgresPauses(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  std::vector<ports::Pause> active() override {
    const auto kept = call_in_transaction(
        *shared_, [&](Pipeline& pipeline) { pipeline.add(sql().active_pauses, kCaller, Pipeline::Keep::binary); });
    std::vector<ports::Pause> pauses;
    for (int row = 0; row < PQntuples(kept[0].get()); ++row) pauses.push_back(pause_in(kept[0].get(), row));
    return pauses;
  }

  void begin(const ports::Pause& pause) override {
    call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      pipeline.add(sql().drop_ended_pauses, kCaller);
      ArgumentBlock& to = pipeline.arguments();
      add_part(to, pause.part);
      to.add_text(printable(pause.by));
      to.add_text(printable(pause.why));
      if (pause.left) to.add_int(pause.left->count());
      else to.add_null(0);
      pipeline.add(sql().begin_pause, kCaller);
    });
  }

  bool end(const ports::PausedPart& part) override {
    const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      add_part(pipeline.arguments(), part);
      pipeline.add(sql().end_pause, kCaller, Pipeline::Keep::text);
    });
    return PQntuples(kept[0].get()) > 0 && number_at(kept[0], 0, 0) != 0;
  }

 private:
  [[nodiscard]] const Statements& sql() const { return shared_->statements; }

  const std::shared_ptr<Shared> shared_;
};

}  // namespace

std::shared_ptr<ports::Pauses> open_pauses(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresPauses>(std::move(shared));
}

}  // namespace turnstile::postgres
