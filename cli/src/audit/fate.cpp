#include "fate.hpp"

#include <fmt/format.h>

namespace turnstile::cli::audit {

namespace {

bool is_below(Offset offset, const std::optional<Offset>& end) { return end && offset < *end; }

/// Whether all records up to this one are settled.
bool is_settled(Offset offset, const Place& place) {
  return place.partition && is_below(offset, place.partition->watermark);
}

/// Modes by_offset and numbered have their own progress, which the transaction of the effect moves.
Fate of_progress(Offset offset, const Place& place) {
  if (place.partition && is_below(offset, place.partition->next_offset)) return Fate::took_effect;
  // The group goes on behind it. Its dead letter was purged, the topic had another mode, or somebody changed the row.
  return is_settled(offset, place) ? Fate::cannot_tell : Fate::pending;
}

bool is_forgotten(const Facts& facts, const Place& place) {
  if (!place.all_since) return false;
  return facts.time == Timestamp{} || postgres::DatabaseTime(facts.time) < *place.all_since;
}

Judgement of_ids(const Facts& facts, const Place& place) {
  if (facts.effect != nullptr) return {Fate::duplicate};
  const bool settled = is_settled(facts.offset, place);
  // A claim that has failed stays behind its dead letter.
  if (facts.claim != nullptr && !(settled && facts.claim->state == "failed"))
    return {facts.claim->state == "parked" ? Fate::parked : Fate::pending};
  if (facts.retry != nullptr) return {facts.retry->dead ? Fate::dead_letter : Fate::pending};
  if (!settled) return {Fate::pending};
  // Its handler had a mode without ids then, or has it still: the program may set the mode.
  if (is_below(facts.offset, place.partition->next_offset)) return {Fate::took_effect};
  if (const auto* missing = std::get_if<RecordIds::Missing>(facts.id))
    return {Fate::unaccounted, "it has no id (" + missing->why + ") and is no dead letter"};
  if (is_forgotten(facts, place)) return {Fate::cannot_tell};
  return {Fate::unaccounted, fmt::format("id {} did not take effect, and is neither a dead letter nor claimed",
                                         std::get<MessageId>(*facts.id).text())};
}

}  // namespace

std::string_view to_text(Fate fate) {
  constexpr std::array<std::string_view, kFates> kTexts{"took effect", "duplicate",           "dead letter",
                                                        "parked",      "for another handler", "pending",
                                                        "cannot tell", "two fates",           "unaccounted"};
  return kTexts.at(static_cast<std::size_t>(fate));
}

bool is_violation(Fate fate) { return fate == Fate::two_fates || fate == Fate::unaccounted; }

bool is_of(const postgres::AuditedEffect& effect, const Facts& facts, const Place& place) {
  return place.partition && effect.slot == place.partition->slot && effect.offset == facts.offset;
}

Judgement judge(const Facts& facts, const Place& place) {
  const bool own = facts.effect != nullptr && is_of(*facts.effect, facts, place);
  if (facts.dead != nullptr && own && !facts.dead->replayed_at && !facts.dead->delivered_again)
    return {Fate::two_fates,
            fmt::format("it took effect, and is also dead letter {}, which was not replayed", facts.dead->number)};
  if (own) return {Fate::took_effect};
  if (facts.dead != nullptr) return {facts.dead->parked && !facts.dead->replayed_at ? Fate::parked : Fate::dead_letter};
  if (std::holds_alternative<RecordIds::ForAnother>(*facts.id)) return {Fate::for_another};
  if (numbers_records(place.mode)) return {of_progress(facts.offset, place)};
  return of_ids(facts, place);
}

}  // namespace turnstile::cli::audit
