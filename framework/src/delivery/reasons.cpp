#include "delivery/reasons.hpp"

#include <fmt/chrono.h>

#include <string>

namespace turnstile::detail {

namespace {

/// Continues "then …". Without a row in the table `dead`, `turnstile dlq replay` finds nothing to publish.
std::string how_to_publish_again(const Unit& unit) {
  if (unit.services().dead_letters->keeps_rows(unit.place())) return "publish it again: turnstile dlq replay";
  const TopicPlan& plan = unit.plan();
  const std::string to = " to '" + plan.topic + "' again";
  return plan.dead_letter ? "publish its record in the topic '" + *plan.dead_letter + "'" + to : "publish it" + to;
}

}  // namespace

DeadLetter reason_killed(const Unit& unit, const UnitItem& item) {
  const int deaths = unit.place().suspicion->deaths(item.offset());
  const std::string died = deaths == 1 ? "1 process died while it ran only this message. Find the cause (its log"
                                       : std::to_string(deaths) +
                                             " processes died while they ran only this message. Find the cause (their "
                                             "logs";
  return {DeadReason::killed_process,
          died + ", core dumps, out-of-memory kills in the kernel's log), fix the handler, then " +
              how_to_publish_again(unit),
          deaths};
}

DeadLetter reason_too_old(const Unit& unit, const UnitItem& item) {
  const auto text = [](Timestamp time) {
    return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::to_time_t(time)));
  };
  return {DeadReason::too_old,
          "it is from " + text(item.message().timestamp()) + ", but all ids are stored only since " +
              text(unit.services().retention->all_since()) +
              ", so it is unknown whether it took effect. If it did not, " + how_to_publish_again(unit) +
              "; if old timestamps are no sign of old deliveries in this topic, set too_old = \"run\"",
          0};
}

DeadLetter reason_no_session(const Unit& unit, const UnitItem& item) {
  return {
      DeadReason::no_session,
      "its producer session " + item.request.request.producer.text() +
          " is unknown, or had expired when it was sent, so Turnstile cannot detect whether it was sent before. If it has "
          "not taken effect, " +
          how_to_publish_again(unit),
      0};
}

DeadLetter reason_forged(const Unit&, const UnitItem& item) {
  return {DeadReason::forged,
          "its header request-proof does not match the secret of producer session " +
              item.request.request.producer.text() + " for this topic: another program has numbered it",
          0};
}

DeadLetter reason_outside_window(const Unit& unit, const UnitItem& item) {
  return {
      DeadReason::outside_window,
      "its number " + std::to_string(item.request.request.number) +
          " is outside the window of its producer: too far behind the last numbers, or further ahead than any producer "
          "counts. It is unknown whether it took effect. If it did not, " +
          how_to_publish_again(unit) + "; if this happens often, raise request_window (" +
          std::to_string(unit.plan().request_window) + ")",
      0};
}

DeadLetter reason_mismatch() { return {DeadReason::mismatch, "the id was seen before with another payload", 0}; }

DeadLetter reason_unreadable() {
  return {
      DeadReason::unreadable,
      "its headers cannot be parsed: they are malformed, or more than librdkafka reads (100,000). Its id, and whether it is a "
      "replay for another handler, are unknown, and this dead letter has none of its headers. Have its producer send it "
      "again",
      0};
}

}  // namespace turnstile::detail
