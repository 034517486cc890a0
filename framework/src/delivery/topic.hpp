#pragma once
// A topic of this process, for its units: plan, handler, services, and the memory that lasts from unit to unit.

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include "config/topic_plan.hpp"
#include "delivery/dead_letters.hpp"
#include "delivery/handler_breaker.hpp"
#include "delivery/lease_renewer.hpp"
#include "delivery/producer_secrets.hpp"
#include "delivery/topic_memory.hpp"
#include "inbox/handler_retention.hpp"
#include "support/observers.hpp"
#include "support/run_log.hpp"
#include "turnstile/handler.hpp"
#include "turnstile/ports/store.hpp"
#include "turnstile/tracer.hpp"

namespace turnstile::detail {

class RecordedTrials;

/// Wakes up the relay of this process. Workers call it after a commit. Any of them may be empty.
struct RelayBell {
  std::function<void()> published{};                        ///< something was added to the outbox
  std::function<void(std::chrono::milliseconds)> stored{};  ///< a stored retry is due after this time
};

struct TopicServices {
  std::shared_ptr<ports::Store> store;            ///< null if the mode has no store
  std::shared_ptr<HandlerRetention> retention{};  ///< how far back ids are stored; null without a store
  std::shared_ptr<LeaseRenewer> claims{};         ///< null unless the mode is leased
  std::shared_ptr<ProducerSecrets> producers{};   ///< null unless producers number their messages
  std::shared_ptr<RecordedTrials> trials{};       ///< null if the program has no store
  std::shared_ptr<DeadLetters> dead_letters;
  std::shared_ptr<const RunLog> run_log;
  Observers observers{};
  std::shared_ptr<Tracer> tracer{};  ///< null: there are no traces
  std::chrono::milliseconds lock_timeout{5'000};
  std::chrono::milliseconds idle_timeout{30'000};
  RelayBell bell{};
  /// True: with `duplicates = "raise"` the caller throws Duplicate itself, so a duplicate is not dead-lettered.
  bool caller_raises = false;
};

struct Topic {
  Topic(TopicPlan its_plan, Pipeline its_pipeline, HandlerId its_handler, TopicServices its_services)
      : plan(std::move(its_plan)),
        pipeline(std::move(its_pipeline)),
        handler(std::move(its_handler)),
        services(std::move(its_services)),
        memory(plan.stop_after_dead),
        breaker(pipeline.breaks_on ? std::make_unique<HandlerBreaker>(plan.breaks) : nullptr) {}

  TopicPlan plan;
  Pipeline pipeline;
  HandlerId handler;
  TopicServices services;
  TopicMemory memory;
  std::unique_ptr<HandlerBreaker> breaker;  ///< null without break_on()
};

}  // namespace turnstile::detail
