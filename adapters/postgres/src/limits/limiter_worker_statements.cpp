// The statements that the worker's thread queues.

#include "limits/limiter_arguments.hpp"
#include "limits/limiter_worker.hpp"

namespace turnstile::postgres {

void LimiterWorker::queue_life(Pipeline& pipeline) {
  pipeline.arguments().add_text(holder_);
  pipeline.arguments().add_int(micros(pace_.lease));
  pipeline.add(sql_.live, kCaller);
}

void LimiterWorker::queue_declaration(Pipeline& pipeline, const LimiterBook& book) {
  ArgumentBlock& to = pipeline.arguments();
  queue_life(pipeline);
  to.add_text(book.name());
  to.add_int(book.configured());
  pipeline.add(sql_.make, kCaller);
  const auto queue_lowering = [&] {
    to.add_text(book.name());
    to.add_int(book.configured());
    pipeline.add(sql_.lower, kCaller);
  };
  queue_lowering();  // before the shared lock: two processes that have it could not lower the limit
  to.add_text(book.name());
  pipeline.add(sql_.share, kCaller);
  to.add_text(book.name());
  to.add_int(book.configured());
  to.add_text(holder_);
  pipeline.add(sql_.declare, kCaller);
  queue_lowering();  // it was raised before the shared lock
  to.add_text(book.name());
  pipeline.add(sql_.tidy, kCaller);
}

void LimiterWorker::queue_settling(Pipeline& pipeline, const LimiterBook& book) {
  pipeline.arguments().add_text(book.name());
  pipeline.add(sql_.lock, kCaller);
  pipeline.arguments().add_text(book.name());
  pipeline.add(sql_.settle, kCaller);
}

/// `known`: absent for a limiter whose number is not known yet. Then nothing is taken or returned.
void LimiterWorker::queue_errand(Pipeline& pipeline, const std::optional<LimiterView>& known,
                                 const LimiterErrand& errand) {
  ArgumentBlock& to = pipeline.arguments();
  const std::int64_t id = known ? known->id : 0;
  if (!errand.give_back.empty()) {
    to.add_int(id);
    add_slots(to, errand.give_back);
    to.add_text(holder_);
    pipeline.add(sql_.give_back, kCaller);
  }
  if (errand.sweep) {
    to.add_int(id);
    pipeline.add(sql_.sweep, kCaller);
  }
  if (errand.waiting > 0) {
    to.add_int(id);
    to.add_text(holder_);
    to.add_int(errand.waiting);
    to.add_int(micros(pace_.wait_counts()));
    to.add_int(errand.wait_anew ? 1 : 0);
    pipeline.add(sql_.await, kCaller);
  } else if (errand.wait_no_more) {
    to.add_int(id);
    to.add_text(holder_);
    pipeline.add(sql_.no_wait, kCaller);
  }
  if (errand.take > 0) {
    to.add_int(id);
    to.add_int(known->version);
    to.add_int(errand.take);
    to.add_text(holder_);
    to.add_int(micros(pace_.lease));
    pipeline.add(sql_.take, kCaller, Pipeline::Keep::text);
  }
}

}  // namespace turnstile::postgres
