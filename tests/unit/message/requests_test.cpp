// Requests that their producers number: their headers, which requests are fresh, and what happens to a message.

#include "turnstile/requests.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <spdlog/sinks/null_sink.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <limits>
#include <set>

#include "delivery/topic_runner.hpp"
#include "message/request_headers.hpp"
#include "tests/support/eventually.hpp"
#include "turnstile/error.hpp"
#include "turnstile/replay.hpp"
#include "turnstile/sender.hpp"
#include "turnstile/testing/broker.hpp"
#include "turnstile/testing/inbox.hpp"

namespace turnstile::detail {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::MemoryBroker;
using testing::MemoryInbox;

// --- on the wire ---

const MessageId kShop = MessageId::from("0190f3a2-0000-7000-8000-000000000001");
const std::string kSecret(32, 's');

OwnedMessage stamped(std::int64_t number = 7, std::int64_t acked = 5) {
  OwnedMessage message;
  message.topic = "orders";
  message.headers = {{"trace", "x"}, {"request-number", "99"}};
  stamp_request(message, {kShop, kSecret}, number, acked);
  return message;
}

std::string problem_with(std::vector<Header> headers) {
  OwnedMessage message;
  message.headers = std::move(headers);
  const auto request = request_of(Message(message));
  const auto* missing = std::get_if<MissingId>(&request);
  return missing == nullptr ? "none" : missing->why;
}

/// The headers of a stamped message, with one of them changed.
std::vector<Header> with(const std::string& name, std::optional<std::string> value) {
  auto headers = stamped().headers;
  for (Header& header : headers) {
    if (header.name == name) header.value = value;
  }
  return headers;
}

TEST(RequestHeaders, hold_what_was_stamped_in_place_of_what_was_there) {
  const OwnedMessage message = stamped();
  const Message view(message);
  const auto request = std::get<StampedRequest>(request_of(view));
  EXPECT_EQ(request.request.producer, kShop);
  EXPECT_EQ(request.request.number, 7);
  EXPECT_EQ(request.request.acked, 5);
  EXPECT_EQ(view.header("trace"), "x");
  EXPECT_TRUE(request.is_proved("orders", kSecret));
}

TEST(RequestHeaders, are_proved_by_the_secret_for_one_topic_one_number_and_one_ack) {
  const OwnedMessage message = stamped();
  const auto request = std::get<StampedRequest>(request_of(Message(message)));
  EXPECT_FALSE(request.is_proved("orders", std::string(32, 't')));
  EXPECT_FALSE(request.is_proved("refunds", kSecret));
  for (const char* changed : {"request-number", "request-ack"}) {
    OwnedMessage other = message;
    other.headers = with(changed, "6");
    EXPECT_FALSE(std::get<StampedRequest>(request_of(Message(other))).is_proved("orders", kSecret)) << changed;
  }
  OwnedMessage other = message;
  other.headers = with("producer-id", "0190f3a2-0000-7000-8000-000000000002");
  EXPECT_FALSE(std::get<StampedRequest>(request_of(Message(other))).is_proved("orders", kSecret));
}

/// The value is what another program computes: HMAC-SHA256 of "0190f3a2-0000-7000-8000-000000000001 7 5 orders".
TEST(RequestHeaders, are_proved_as_the_format_says) {
  const OwnedMessage message = stamped();
  EXPECT_EQ(Message(message).header("request-proof"), "995651a671838f8d2cd974bc0d9d1320");
}

TEST(RequestHeaders, say_what_is_wrong_with_them) {
  EXPECT_EQ(problem_with({}), "header 'producer-id' is absent");
  EXPECT_EQ(problem_with(with("producer-id", "shop")), "header 'producer-id' is not a UUID in lowercase letters");
  EXPECT_EQ(problem_with(with("producer-id", "0190F3A2-0000-7000-8000-000000000001")),
            "header 'producer-id' is not a UUID in lowercase letters");
  for (const char* number :
       {"0", "-1", "9223372036854775808", "99999999999999999999999", "", "1 ", "+1", "0x1", "1.0"}) {
    EXPECT_EQ(problem_with(with("request-number", number)),
              "header 'request-number' is not a decimal number from 1 to 9223372036854775807")
        << number;
  }
  EXPECT_EQ(problem_with(with("request-number", "9223372036854775807")), "none");
  EXPECT_EQ(problem_with(with("request-number", std::nullopt)), "header 'request-number' has no value");
  EXPECT_EQ(problem_with(with("request-ack", "-1")),
            "header 'request-ack' is not a decimal number from 0 to 9223372036854775807");
  auto twice = stamped().headers;
  twice.push_back({"request-number", "8"});
  EXPECT_EQ(problem_with(twice), "header 'request-number' appears 2 times");
  auto unsigned_one = stamped().headers;
  std::erase_if(unsigned_one, [](const Header& header) { return header.name == "request-proof"; });
  EXPECT_EQ(problem_with(unsigned_one), "header 'request-proof' is absent");
  auto without_ack = stamped().headers;
  std::erase_if(without_ack, [](const Header& header) { return header.name == "request-ack"; });
  EXPECT_EQ(problem_with(without_ack), "none") << "a producer that does not acknowledge";
}

// --- the window ---

/// Numbers in any order: none is fresh twice, and only a number that is too far back cannot be decided.
RC_GTEST_PROP(RequestWindow, tells_apart_what_is_inside, ()) {
  constexpr std::int64_t kSize = 16;
  RequestWindow window(kSize);
  std::set<std::int64_t> seen;
  std::int64_t high = 0, acked = 0;
  const auto steps = *rc::gen::container<std::vector<std::pair<int, int>>>(
      rc::gen::pair(rc::gen::inRange(-20, 20), rc::gen::inRange(-30, 5)));
  for (const auto& [ahead, ack] : steps) {
    const std::int64_t number = std::max<std::int64_t>(1, high + ahead);
    const auto place = window.admit({kShop, number, std::max<std::int64_t>(0, high + ack), {}});
    const bool outside = number <= high && number <= high - kSize;
    if (outside) RC_ASSERT(place == (number <= acked ? RequestWindow::Place::seen : RequestWindow::Place::outside));
    else RC_ASSERT((place == RequestWindow::Place::fresh) == seen.insert(number).second);
    acked = std::max({acked, std::max<std::int64_t>(0, high + ack)});
    high = std::max(high, number);
    if (*rc::gen::inRange(0, 5) == 0) window = RequestWindow(kSize, window.kept());  // as another process reads it
  }
}

TEST(RequestWindow, a_number_out_of_reach_is_refused_and_the_session_goes_on) {
  RequestWindow window(16);
  for (const std::int64_t first : {std::numeric_limits<std::int64_t>::max(), kHighestNumber + 1})
    EXPECT_EQ(window.admit({kShop, first, first, {}}), RequestWindow::Place::outside);
  EXPECT_EQ(window.admit({kShop, 1, 0, {}}), RequestWindow::Place::fresh);
  EXPECT_EQ(window.admit({kShop, kFurthestAhead + 2, kFurthestAhead, {}}), RequestWindow::Place::outside);
  EXPECT_EQ(window.admit({kShop, 1, 0, {}}), RequestWindow::Place::seen);
  EXPECT_EQ(window.admit({kShop, 2, 0, {}}), RequestWindow::Place::fresh);
  EXPECT_EQ(window.kept().acked, 0);
  EXPECT_EQ(window.admit({kShop, kFurthestAhead + 2, 0, {}}), RequestWindow::Place::fresh) << "within reach of 2";
}

TEST(RequestWindow, begins_at_any_number_and_counts_up_to_the_highest) {
  constexpr std::int64_t kMost = kHighestNumber;
  RequestWindow window(16);
  EXPECT_EQ(window.admit({kShop, kMost - 1, 0, {}}), RequestWindow::Place::fresh);
  EXPECT_EQ(window.admit({kShop, kMost, 0, {}}), RequestWindow::Place::fresh);
  RequestWindow wider(32, window.kept());
  EXPECT_EQ(wider.admit({kShop, kMost, 0, {}}), RequestWindow::Place::seen);
  EXPECT_EQ(wider.admit({kShop, kMost - 2, 0, {}}), RequestWindow::Place::fresh);
}

// --- what becomes of a message ---

class Requests : public ::testing::Test {
 protected:
  Requests() {
    for (const char* topic : {"t", "t.dlq", "replies"}) broker_.create_topic(topic, 1);
    const TopicPartition at{"t", 0};
    const auto claim = inbox_->claim_partitions("g", {&at, 1}, 1s).front();
    place_ = {at, claim.fence, claim.incarnation};
    TopicSettings settings;
    settings.mode = Mode::numbered;
    settings.request_window = 16;
    settings.dead_letter = "";
    settings.duplicates = DuplicatePolicy::replay;
    settings.reply_topics = "replies";
    runner_ = new_runner(settings_ = settings);
    shop_ = inbox_->producers()->open({.name = "shop"});
  }
  /// A runner like that of a process that has just started.
  std::unique_ptr<TopicRunner> new_runner(const TopicSettings& settings) {
    TopicRunner::Services services;
    services.store = inbox_;
    services.producers = std::make_shared<ProducerSecrets>(inbox_->producers());
    services.dead_letters = std::make_shared<DeadLetters>(broker_.open_producer(), inbox_);
    services.run_log = std::make_shared<RunLog>(
        std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>()), "test");
    return std::make_unique<TopicRunner>(
        plan_topic("t", settings),
        [this](const Message& message, Context& context) {
          runs_.emplace_back(message.text());
          context.reply("re " + std::string(message.text()));
          return Outcome::done();
        },
        inbox_->register_handler("t"), std::move(services));
  }
  OwnedMessage record(std::int64_t number, const std::string& text, const ports::ProducerSession& session) {
    OwnedMessage message;
    message.topic = "t";
    message.offset = offset_++;
    message.payload = text;
    message.timestamp = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()) - 1s;
    stamp_request(message, session, number);
    return message;
  }
  UnitResult run(const std::vector<OwnedMessage>& owned) {
    std::vector<Message> messages(owned.begin(), owned.end());
    std::vector<Work> works;
    for (std::size_t i = 0; i < messages.size(); ++i) works.push_back({&messages[i], i, 1});
    const auto session = inbox_->open_session();
    RunState watch;
    return runner_->run(works, place_, session.get(), watch);
  }
  std::vector<std::string> parked() {
    std::vector<std::string> reasons;
    for (const auto& dead : inbox_->dead())
      reasons.push_back(dead.record.payload.value_or("") + " " + std::string(to_text(dead.reason)));
    return reasons;
  }
  std::vector<std::string> replies() {
    std::vector<std::string> bodies;
    for (const auto& message : inbox_->published()) bodies.push_back(message.payload.value_or(""));
    return bodies;
  }

  std::shared_ptr<MemoryInbox> inbox_ = std::make_shared<MemoryInbox>();
  MemoryBroker broker_;
  OwnedPartition place_;
  TopicSettings settings_;
  std::unique_ptr<TopicRunner> runner_;
  ports::ProducerSession shop_;
  Offset offset_ = 0;
  std::vector<std::string> runs_;
};

TEST_F(Requests, run_once_and_are_answered_alike) {
  EXPECT_EQ(run({record(1, "a", shop_), record(2, "b", shop_), record(1, "a", shop_)}).counts.duplicates, 1);
  run({record(2, "b", shop_)});
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
  EXPECT_THAT(replies(), ElementsAre("re a", "re b", "re a", "re b"));
  EXPECT_EQ(inbox_->size(), 0U) << "no row for a message";
}

TEST_F(Requests, whose_producer_is_not_proved_are_parked) {
  const ports::ProducerSession forged{shop_.id, std::string(32, 'x')};
  const ports::ProducerSession unknown{MessageId::from("nobody"), shop_.secret};
  OwnedMessage bare = record(1, "bare", shop_);
  bare.headers.clear();
  const auto result = run({record(1, "forged", forged), record(1, "unknown", unknown), bare, record(1, "good", shop_)});
  for (const Verdict& verdict : result.verdicts) EXPECT_EQ(verdict.kind, Verdict::Kind::settled);
  EXPECT_THAT(runs_, ElementsAre("good"));
  EXPECT_THAT(parked(), ::testing::UnorderedElementsAre("forged forged", "unknown no_session", "bare missing_id"));
}

TEST_F(Requests, that_nobody_can_tell_apart_are_parked) {
  run({record(1, "a", shop_), record(40, "b", shop_)});
  run({record(3, "late", shop_)});
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
  EXPECT_THAT(parked(), ElementsAre("late outside_window"));
  EXPECT_THAT(inbox_->dead().front().error, HasSubstr("raise request_window (16)"));
}

TEST_F(Requests, of_an_expired_session_are_parked_if_they_were_sent_afterwards) {
  const auto before = record(1, "before", shop_);
  inbox_->age_producers(301s);
  EXPECT_EQ(inbox_->producers()->expire(), 1);
  OwnedMessage after = record(2, "after", shop_);
  after.timestamp += 2s;
  run({before, after});
  EXPECT_THAT(runs_, ElementsAre("before"));
  EXPECT_THAT(parked(), ElementsAre("after no_session"));
}

TEST_F(Requests, that_were_seen_are_duplicates_also_when_their_session_has_expired) {
  run({record(1, "a", shop_)});
  inbox_->age_producers(301s);
  EXPECT_EQ(inbox_->producers()->expire(), 1);
  OwnedMessage again = record(1, "a", shop_);
  again.timestamp += 2s;
  EXPECT_EQ(run({again}).counts.duplicates, 1);
  EXPECT_THAT(parked(), IsEmpty());
}

/// The message must be a dead letter before the partition goes past it. Otherwise a process that dies in between would
/// have lost it.
TEST_F(Requests, that_may_not_run_are_not_passed_over_before_they_are_dead) {
  run({record(40, "far", shop_)});
  settings_.dead_letter = "no.such.topic";
  runner_ = new_runner(settings_);
  const std::vector<OwnedMessage> unit = {record(41, "a", shop_), record(3, "late", shop_), record(42, "b", shop_)};
  const auto result = run(unit);
  EXPECT_EQ(result.verdicts[0].kind, Verdict::Kind::settled);
  EXPECT_EQ(result.verdicts[1].kind, Verdict::Kind::retry);
  EXPECT_TRUE(result.refused);
  EXPECT_EQ(result.verdicts[2].kind, Verdict::Kind::put_back);

  settings_.dead_letter = "";
  runner_ = new_runner(settings_);
  run(unit);
  EXPECT_THAT(runs_, ElementsAre("far", "a", "b"));
  EXPECT_THAT(parked(), ElementsAre("late outside_window"));
}

TEST_F(Requests, of_a_session_that_was_forgotten_and_opened_anew_are_no_forgeries) {
  const MessageId id = MessageId::from("nightly");
  run({record(1, "old", inbox_->producers()->open({.name = "nightly", .id = id}))});
  for (int twice = 0; twice < 2; ++twice) {
    inbox_->age_producers(24h * 30);
    inbox_->producers()->expire();
  }
  const auto anew = inbox_->producers()->open({.name = "nightly", .id = id});
  run({record(1, "new", anew), record(2, "forged", {id, std::string(32, 'x')})});
  EXPECT_THAT(runs_, ElementsAre("old", "new"));
  EXPECT_THAT(parked(), ElementsAre("forged forged"));
}

TEST_F(Requests, that_were_replayed_run_once_and_for_their_handler_alone) {
  run({record(1, "a", shop_)});
  inbox_->age_producers(301s);
  EXPECT_EQ(inbox_->producers()->expire(), 1);
  const auto replayed = [&](std::int64_t number, const std::string& text, const std::string& handler) {
    OwnedMessage message = record(number, text, shop_);
    message.headers.push_back({std::string(kReplayedFor), handler});
    message.headers.push_back({std::string(kReplayedFrom), "t[0]@7"});
    message.headers.push_back({std::string(kSentAt), std::to_string(message.timestamp.time_since_epoch().count())});
    message.timestamp += 1h;
    return message;
  };
  const auto result = run({replayed(1, "a", "t"), replayed(2, "b", "t"), replayed(3, "c", "another")});
  EXPECT_EQ(result.counts.duplicates, 2);
  EXPECT_THAT(runs_, ElementsAre("a", "b"));
  EXPECT_THAT(parked(), IsEmpty());
}

/// The producer reports that it is done with the message, because the broker has accepted it. Nothing proves that it
/// has run.
TEST_F(Requests, that_were_replayed_too_late_are_parked_and_not_taken_for_done) {
  const auto far = [&] {
    OwnedMessage message = record(40, "far", shop_);
    stamp_request(message, shop_, 40, 39);
    return message;
  };
  run({far()});
  OwnedMessage replayed = record(3, "late", shop_);
  EXPECT_EQ(run({replayed}).counts.duplicates, 1) << "whoever sends it again has had his answer";
  replayed = record(3, "late", shop_);
  replayed.headers.push_back({std::string(kReplayedFor), "t"});
  replayed.headers.push_back({std::string(kReplayedFrom), "t[0]@7"});
  EXPECT_EQ(run({replayed}).counts.dead, 1);
  EXPECT_THAT(parked(), ElementsAre("late outside_window"));
}

/// A handler has published what it received, with all the headers.
TEST_F(Requests, that_bear_the_headers_of_another_topics_replay_are_not_passed_over) {
  OwnedMessage forwarded = record(1, "a", shop_);
  forwarded.headers.push_back({std::string(kReplayedFor), "another"});
  forwarded.headers.push_back({std::string(kReplayedFrom), "source[0]@7"});
  EXPECT_EQ(run({forwarded}).counts.done, 1);
}

TEST_F(Requests, wait_while_the_store_is_away) {
  const auto sent = record(1, "a", shop_);
  inbox_->set_unavailable(true);
  EXPECT_EQ(run({sent}).end, UnitResult::End::store_unavailable);
  inbox_->set_unavailable(false);
  EXPECT_EQ(run({sent}).counts.done, 1);
  EXPECT_THAT(parked(), IsEmpty());
}

// --- the producer's part ---

/// Each order takes effect once, however often it arrives.
void send_orders(NumberedSender& sender, const std::vector<OwnedMessage>& orders) {
  for (const auto& fate : sender.send(orders)) {
    if (fate.kind != ports::BrokerSender::Fate::Kind::sent) throw std::runtime_error("not sent: " + fate.why);
  }
}

class Sender : public ::testing::Test {
 protected:
  Sender() {
    broker_.create_topic("t", 4);
    broker_.create_topic("u", 1);
  }
  std::unique_ptr<NumberedSender> open(NumberedSender::Options options = {.name = "shop"}) {
    options.logger = quiet();
    return std::make_unique<NumberedSender>(broker_, inbox_->producers(), std::move(options));
  }
  static std::shared_ptr<spdlog::logger> quiet() {
    return std::make_shared<spdlog::logger>("quiet", std::make_shared<spdlog::sinks::null_sink_mt>());
  }
  /// Counts the heartbeats that succeeded and those that failed.
  class Counted final : public ports::Producers {
   public:
    explicit Counted(std::shared_ptr<ports::Producers> inner) : inner_(std::move(inner)) {}
    ports::ProducerSession open(const ports::ProducerTerms& terms) override { return inner_->open(terms); }
    bool heartbeat(const MessageId& id) override {
      try {
        const bool known = inner_->heartbeat(id);
        ++beats;
        return known;
      } catch (const StoreUnavailable&) {
        ++failures;
        throw;
      }
    }
    std::vector<std::optional<std::string>> secrets(std::span<const MessageId> ids) override {
      return inner_->secrets(ids);
    }
    std::int64_t expire() override { return inner_->expire(); }
    std::atomic<int> beats = 0, failures = 0;

   private:
    const std::shared_ptr<ports::Producers> inner_;
  };
  static OwnedMessage message(const std::string& topic, std::optional<std::string> key = std::nullopt) {
    OwnedMessage message;
    message.topic = topic;
    message.key = std::move(key);
    message.payload = "x";
    return message;
  }
  static ports::Request request(const OwnedMessage& message) {
    return std::get<StampedRequest>(request_of(Message(message))).request;
  }

  std::shared_ptr<MemoryInbox> inbox_ = std::make_shared<MemoryInbox>();
  MemoryBroker broker_;
};

TEST_F(Sender, numbers_by_topic_and_acknowledges_what_was_taken) {
  const auto sender = open();
  const std::vector<OwnedMessage> three(3, message("t"));
  for (const auto& fate : sender->send(three)) EXPECT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent);
  const auto next = sender->stamp(message("t"));
  EXPECT_EQ(next.number, 4);
  EXPECT_EQ(request(next.message).acked, 3);
  EXPECT_EQ(request(next.message).producer, sender->session());
  EXPECT_EQ(sender->stamp(message("u")).number, 1);
}

TEST_F(Sender, does_all_that_a_producer_has_to_do) {
  const auto sender = open();
  send_orders(*sender, {message("t", "a"), message("t", "b")});
  std::set<std::int64_t> numbers;
  for (const auto& record : broker_.records("t")) numbers.insert(request(record).number);
  EXPECT_THAT(numbers, ElementsAre(1, 2));
}

TEST_F(Sender, gives_what_has_no_key_a_partition_that_stays) {
  const auto sender = open();
  EXPECT_GE(sender->stamp(message("t")).message.partition, 0);
  EXPECT_NE(sender->stamp(message("t")).message.partition, sender->stamp(message("t")).message.partition);
  EXPECT_EQ(sender->stamp(message("t", "k")).message.partition, -1);
}

TEST_F(Sender, sends_again_under_the_same_number) {
  const auto sender = open();
  const auto stamped = sender->stamp(message("t"));
  const OwnedMessage twice[] = {stamped.message, stamped.message};
  sender->send(twice);
  EXPECT_EQ(sender->stamp(message("t")).number, 2);
}

TEST_F(Sender, acknowledges_by_hand_what_it_has_an_answer_to) {
  const auto sender = open({.name = "shop", .acknowledge = NumberedSender::Acknowledge::by_hand});
  const std::vector<OwnedMessage> three(3, message("t"));
  sender->send(three);
  EXPECT_EQ(request(sender->stamp(message("t")).message).acked, 0);
  const MessageId session = sender->session();
  sender->acknowledge("t", session, 2);
  sender->acknowledge("t", session, 77);
  EXPECT_EQ(request(sender->stamp(message("t")).message).acked, 0) << "1 is open";
  sender->acknowledge("t", MessageId::from("an earlier session"), 1);
  EXPECT_EQ(request(sender->stamp(message("t")).message).acked, 0) << "another session's";
  sender->acknowledge("t", session, 1);
  EXPECT_EQ(request(sender->stamp(message("t")).message).acked, 2);
}

/// Later messages have reported that the producer is done with this number. Consumers would therefore assume that the
/// message has taken effect.
TEST_F(Sender, refuses_to_send_again_what_was_refused) {
  const auto sender = open({.name = "shop", .acknowledge = NumberedSender::Acknowledge::by_hand});
  const auto lost = sender->stamp(message("t")), open_one = sender->stamp(message("t")),
             fine = sender->stamp(message("t"));
  const auto send = [&](const OwnedMessage& one) { return sender->send({&one, 1}).front(); };
  broker_.refuse("t", "not authorised");
  EXPECT_THAT(send(lost.message).why, HasSubstr("not authorised"));
  broker_.allow("t");
  const std::size_t before = broker_.records("t").size();
  const auto again = send(lost.message);
  EXPECT_EQ(again.kind, ports::BrokerSender::Fate::Kind::refused);
  EXPECT_THAT(again.why, HasSubstr("without its stamp"));
  EXPECT_EQ(broker_.records("t").size(), before);
  const OwnedMessage mixed[] = {lost.message, fine.message, message("t")};
  const auto fates = sender->send(mixed);
  EXPECT_EQ(fates[0].kind, ports::BrokerSender::Fate::Kind::refused);
  EXPECT_EQ(fates[1].kind, ports::BrokerSender::Fate::Kind::sent);
  EXPECT_EQ(fates[2].kind, ports::BrokerSender::Fate::Kind::sent);
  EXPECT_EQ(send(open_one.message).kind, ports::BrokerSender::Fate::Kind::sent);
  EXPECT_EQ(broker_.records("t").size(), before + 3);
}

TEST_F(Sender, numbers_nothing_when_a_topic_of_the_batch_does_not_exist) {
  const auto sender = open();
  const OwnedMessage both[] = {message("t"), message("missing")};
  EXPECT_THROW(sender->send(both), BrokerError);
  EXPECT_EQ(sender->stamp(message("t")).number, 1);
}

/// In any order, the sender reports that it is done with a number only after all numbers before it are closed.
RC_GTEST_FIXTURE_PROP(Sender, says_to_be_done_up_to_the_first_that_is_open, ()) {
  constexpr std::int64_t kAll = 12;
  const auto sender = open({.name = "shop", .acknowledge = NumberedSender::Acknowledge::by_hand});
  for (std::int64_t i = 0; i < kAll; ++i) sender->stamp(message("t"));
  std::set<std::int64_t> closed;
  for (const auto number :
       *rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(1, kAll + 1))) {
    sender->acknowledge("t", sender->session(), number);
    closed.insert(number);
  }
  std::int64_t done = 0;
  while (closed.contains(done + 1)) ++done;
  RC_ASSERT(request(sender->stamp(message("t")).message).acked == done);
}

TEST_F(Sender, goes_on_with_a_new_session_when_its_own_has_expired) {
  const auto sender = open({.name = "shop", .expiry = 30ms});
  const MessageId first = sender->session();
  sender->stamp(message("t"));
  inbox_->age_producers(1h);
  while (inbox_->producers()->expire() == 0 && sender->session() == first) inbox_->age_producers(1h);
  EXPECT_TRUE(test::eventually([&] { return sender->session() != first; }, 10s));
  EXPECT_EQ(sender->stamp(message("t")).number, 1);
}

TEST_F(Sender, tries_again_while_the_store_is_away) {
  const auto counted = std::make_shared<Counted>(inbox_->producers());
  NumberedSender sender(broker_, counted, {.name = "shop", .expiry = 30ms, .logger = quiet()});
  const MessageId first = sender.session();
  inbox_->set_unavailable(true);
  EXPECT_TRUE(test::eventually([&] { return counted->failures >= 2; }));
  const OwnedMessage meanwhile[] = {message("t")};
  EXPECT_EQ(sender.send(meanwhile).front().kind, ports::BrokerSender::Fate::Kind::sent);
  const int before = counted->beats;
  inbox_->set_unavailable(false);
  EXPECT_TRUE(test::eventually([&] { return counted->beats > before; }));
  EXPECT_EQ(sender.session(), first);
}

TEST_F(Sender, says_that_a_topic_is_missing) {
  const auto sender = open();
  EXPECT_THROW(sender->stamp(message("nowhere")), BrokerError);
  inbox_->set_unavailable(true);
  EXPECT_THROW(open(), StoreUnavailable);
}

TEST(StampingSender, gives_an_id_to_what_has_none) {
  MemoryBroker broker;
  broker.create_topic("t", 1);
  StampingSender sender(broker.open_sender());
  OwnedMessage bare, named;
  bare.topic = named.topic = "t";
  named.headers = {{"message-id", "mine"}};
  OwnedMessage first = bare, second = bare, third = named;
  sender.stamp(first);
  sender.stamp(second);
  sender.stamp(third);
  EXPECT_NE(first.headers.at(0).value, second.headers.at(0).value);
  EXPECT_EQ(third.headers.size(), 1U);
  const OwnedMessage both[] = {bare, named};
  for (const auto& fate : sender.send(both)) EXPECT_EQ(fate.kind, ports::BrokerSender::Fate::Kind::sent);
}

}  // namespace
}  // namespace turnstile::detail
