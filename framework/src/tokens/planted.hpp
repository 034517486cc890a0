#pragma once
// Planted bugs, each in a named condition that the rule uses. They let the simulator prove that it finds such bugs
// (tests/simulation/planted_test.cpp). They exist only in builds with TURNSTILE_FAILPOINTS; in other builds the
// condition is false.

#if defined(TURNSTILE_FAILPOINTS) && TURNSTILE_FAILPOINTS

#include <array>
#include <cstdint>
#include <string_view>

namespace turnstile::tokens {

enum class Planted : std::uint8_t {
  none,
  // apply
  duplicates_applied,
  late_release_of_an_old_epoch,
  expire_despite_later_writing,
  late_joined_revives,
  stale_claim_accepted,
  fence_reclaims_strict,
  fence_reclaims_services,
  unfenced_reclaimed_at_once,
  release_frees_twice,
  draining_not_counted,
  counted_by_place_in_line,
  rejected_below_the_newest_holder,
  lowered_limit_grants,
  limit_set_unseen,
  turns_not_taken,
  reserve_without_room,
  reserve_ends_with_the_lease,
  groups_share_partitions,
  closed_grants,
  opened_in_any_part,
  joined_in_any_part,
  // snapshot
  snapshot_forgets_draining,
  snapshot_forgets_ended_lives,
  // member
  lease_from_the_answer,
  no_clock_margin,
  fence_not_followed,
  drained_said_once,
  void_event_renews,
  turn_from_the_first_permit,
  turn_ends_with_what_is_held,
  falls_not_said,
  gone_said_and_opened,
  rests_with_permits,
  rests_beside_others,
  // pool
  late_permit_not_credited,
  // domain
  trimmed_is_broken,
  opened_while_held,
};
inline constexpr std::array<std::string_view, 38> kPlantedNames{
    "none",
    "duplicates_applied",
    "late_release_of_an_old_epoch",
    "expire_despite_later_writing",
    "late_joined_revives",
    "stale_claim_accepted",
    "fence_reclaims_strict",
    "fence_reclaims_services",
    "unfenced_reclaimed_at_once",
    "release_frees_twice",
    "draining_not_counted",
    "counted_by_place_in_line",
    "rejected_below_the_newest_holder",
    "lowered_limit_grants",
    "limit_set_unseen",
    "turns_not_taken",
    "reserve_without_room",
    "reserve_ends_with_the_lease",
    "groups_share_partitions",
    "closed_grants",
    "opened_in_any_part",
    "joined_in_any_part",
    "snapshot_forgets_draining",
    "snapshot_forgets_ended_lives",
    "lease_from_the_answer",
    "no_clock_margin",
    "fence_not_followed",
    "drained_said_once",
    "void_event_renews",
    "turn_from_the_first_permit",
    "turn_ends_with_what_is_held",
    "falls_not_said",
    "gone_said_and_opened",
    "rests_with_permits",
    "rests_beside_others",
    "late_permit_not_credited",
    "trimmed_is_broken",
    "opened_while_held",
};

/// The bug that is in effect. Set it while no other thread runs.
inline Planted planted = Planted::none;

}  // namespace turnstile::tokens

#define TURNSTILE_PLANTED(name) (::turnstile::tokens::planted == ::turnstile::tokens::Planted::name)

#else

#define TURNSTILE_PLANTED(name) false

#endif
