#pragma once
// The adapter's own SQL, with the schema's name in it: nothing depends on search_path (hazard: pooled-session).

#include <string>

namespace turnstile::postgres {

struct Statements {
  explicit Statements(const std::string& schema);

  // The transaction of a batch.
  std::string begin;
  struct Admit {
    std::string many;  ///< after look_up_by_index
    std::string many_contended;
    std::string one;
  };
  std::string look_up_by_index;
  Admit fenced;
  Admit free;
  std::string one_own_timeouts;  ///< fenced.one, if the session has the timeouts
  std::string own_timeouts;
  std::string still_owner;
  std::string shared;
  std::string add_progress;
  std::string lock_progress;
  std::string move_progress;
  std::string read_windows;
  std::string move_windows;
  std::string drop_responses;
  std::string respond_request;
  std::string request_responses;
  std::string join;
  std::string find;
  std::string fingerprints;
  std::string settled;
  std::string respond;
  std::string responses;
  std::string publish;
  std::string publish_text;
  std::string schedule;
  std::string schedule_text;

  // Claims.
  struct TakeClaims {
    std::string any;
    std::string new_ones;
  };
  TakeClaims take_claims;
  TakeClaims take_free_claims;
  std::string drop_done_claims;
  std::string begin_claims;
  std::string end_claims;  ///< after find_by_index, as the next
  std::string end_claims_contended;
  std::string find_by_index;
  std::string fail_claims;
  std::string give_claims_back;
  std::string renew_claims;
  std::string drop_lapsed_claims;
  std::string count_claims;

  // Trials.
  std::string blame;
  std::string suspects;
  std::string begin_trial;
  std::string end_trial;
  std::string end_outlasting;
  std::string give_up;
  std::string release;

  // Pauses.
  std::string active_pauses;
  std::string begin_pause;
  std::string drop_ended_pauses;
  std::string end_pause;

  // Producers.
  std::string open_producer;
  std::string producer_heartbeat;
  std::string producer_secrets;
  std::string expire_producers;
  std::string forget_producers;

  // Stored retries.
  std::string locked_retries;
  std::string stored_retries;
  std::string retry_keys;
  std::string take_back_ids;
  std::string add_retries;
  std::string defer_retries;
  std::string end_retries;
  std::string retries_to_send;
  std::string look_for_due_retries;
  std::string retries_are_sent;
  std::string refuse_retry;

  // The relay.
  std::string keep_shards;
  std::string leave_shards;
  std::string waiting;
  std::string release_due;
  std::string remove_sent;
  std::string refuse;
  std::string lag;

  // The store's own calls.
  std::string history;
  std::string timeouts;
  std::string add_fences;
  std::string claim;
  std::string claimed;
  std::string advance;
  std::string incarnation;
  std::string record_dead;
  std::string dead_between;
  std::string find_handler;
  std::string register_handler;
  std::string first_group;
  std::string keep_ids;
  std::string purge_step;
};

}  // namespace turnstile::postgres
