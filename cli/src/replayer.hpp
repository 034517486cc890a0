#pragma once
// Publishes dead letters to their original topics, for `turnstile dlq replay` and the dashboard. The row is marked in a
// transaction that commits after the broker has acknowledged the record. A record that cannot be marked is therefore not
// published. After a crash before the commit it is published again, and the inbox rejects the second copy.
// If a record's place is its id, the inbox could not reject it. In that case the start of the replay is committed
// first, with a token that the record carries, and its end after the acknowledgement. If the process dies between the
// two, the replay is in doubt. An operator looks for the token in the topic, and decides (--done, --again).

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "replay_plan.hpp"
#include "turnstile/error.hpp"
#include "turnstile/ports/broker.hpp"
#include "turnstile/ports/store.hpp"
#include "turnstile/postgres/admin.hpp"

namespace turnstile::cli {

/// A flag that an operator decides with. It can name the replay in doubt that the operator has looked for:
/// --again=TOKEN.
struct Decision {
  std::string given;  ///< empty: not given; kPlain: without a token
  static constexpr std::string_view kPlain = "true";

  explicit operator bool() const { return !given.empty(); }
  [[nodiscard]] std::optional<std::string> token() const {
    return given.empty() || given == kPlain ? std::nullopt : std::optional(given);
  }
};

/// An operator settles or replaces the last replay of a dead letter only, and has looked for its record. Throws Refusal
/// otherwise.
void require_last_replay(const postgres::DeadSummary& dead, const Decision& decided);
/// Throws Refusal if the dead letter was replayed, may have been, or has taken effect, unless the operator insists.
void require_replayable(const postgres::DeadSummary& dead, const Decision& again);

/// By what happens to them, and by reason: how many dead letters are not published.
using LeftOut = std::map<std::pair<ReplayPart, std::string>, std::int64_t>;

class Replayer {
 public:
  /// What became of each dead letter.
  class Listener {
   public:
    virtual ~Listener() = default;
    /// `caution`: what will happen to it again if nothing else has changed, for people; may be empty.
    virtual void sent(const postgres::DeadSummary& dead, const TopicPartitionOffset& at,
                      const std::string& caution) = 0;
    /// Another operator changed it after it was read, so it was not published here.
    virtual void was_faster(std::int64_t number, const std::string& why) = 0;
    /// It waits as before.
    virtual void cannot_be_sent(std::int64_t number, const std::string& why) = 0;
    /// The broker may have it.
    virtual void in_doubt(std::int64_t number, const std::string& why) = 0;
    /// Of all(): it is not published, according to replay_part().
    virtual void left_out(ReplayPart part, const std::string& reason) = 0;
    /// Of all(): waits before the next one is published. False stops.
    virtual bool wait_until(Pace::Clock::time_point due) = 0;
    /// Of all(): one more is settled.
    virtual void settled() {}
    /// What it returns lives while a dead letter is published.
    virtual std::shared_ptr<void> hold() { return nullptr; }
  };

  /// `again`: replayed records must run once more. `config` and `listener` must outlive it. Throws UsageError.
  Replayer(const Config& config, bool again, Listener& listener);

  /// Throws BrokerError, StoreUnavailable, and Error if it cannot be published.
  void one(const postgres::DeadRecord& dead) { publish(dead); }
  /// Those of `filter` that wait. Continues if some cannot be published. `by_reason`: the operator has named the reason.
  /// Throws BrokerError, StoreUnavailable. Records that were reported as sent are published.
  void all(postgres::DeadFilter filter, bool by_reason, std::optional<std::chrono::nanoseconds> interval);

  /// These, in this order. Reports those that were replayed already, and continues. Throws as all().
  void some(const std::vector<std::int64_t>& numbers, std::optional<std::chrono::nanoseconds> interval);

  [[nodiscard]] postgres::Admin& admin() noexcept { return admin_; }

 private:
  std::int32_t partitions_of(const std::string& topic);
  void replay_if_it_waits(std::int64_t number);
  void publish_if_possible(const postgres::DeadRecord& dead);
  [[nodiscard]] bool still_answers(const std::string& topic) const;
  [[nodiscard]] std::string what_changed(const postgres::DeadSummary& seen);
  void publish(const postgres::DeadRecord& dead);
  std::optional<ports::BrokerProducer::Sent> send_with_mark(const postgres::DeadSummary& summary,
                                                            const OwnedMessage& message);
  [[noreturn]] void refuse(const postgres::DeadSummary& summary, const BrokerError& e) const;
  std::optional<ports::BrokerProducer::Sent> send_after_mark(const postgres::DeadSummary& summary,
                                                             OwnedMessage message);
  ports::BrokerProducer::Sent send_or_doubt(const postgres::DeadSummary& begun, const OwnedMessage& message);
  void number_anew(const postgres::DeadSummary& summary, OwnedMessage& message);

  bool again_;
  bool all_ = false;
  Listener& listener_;
  const Config& config_;
  postgres::Admin admin_;
  std::shared_ptr<ports::Producers> producers_;  ///< null until a numbered request is replayed
  std::shared_ptr<ports::Broker> broker_;
  std::shared_ptr<ports::BrokerProducer> producer_;
  std::map<std::string, std::int32_t> partitions_;
};

/// What Replayer::all() would do.
struct ReplayPreview {
  postgres::DeadGroups published;
  LeftOut left_out;
  std::map<std::string, std::int64_t> cannot_be_sent;  ///< by reason: how many letters
  double seconds = 0;                                  ///< at the rate; 0 without one

  /// How many are not published, and why.
  [[nodiscard]] std::vector<std::pair<std::int64_t, std::string>> skipped() const;
};
/// Asks Kafka for the topics if `config` names a broker. Throws BrokerError if it does not answer.
ReplayPreview preview_replay(const Config& config, postgres::Admin& admin, postgres::DeadFilter filter, bool by_reason,
                             std::optional<std::chrono::nanoseconds> interval);

}  // namespace turnstile::cli
