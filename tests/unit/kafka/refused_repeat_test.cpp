// A broker that does not answer a request may have stored its records, also if it refuses the repetition
// (hazard: refused-repeat).

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "turnstile/kafka/broker.hpp"
#include "turnstile/kafka/mock.hpp"
#include "turnstile/ports/record_not_stored.hpp"

namespace turnstile::kafka {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using FateKind = ports::BrokerSender::Fate::Kind;

class RefusedRepeat : public ::testing::Test {
 protected:
  RefusedRepeat() { mock_.create_topic("payments", 1); }
  static OwnedMessage record(const std::string& payload) {
    OwnedMessage record;
    record.topic = "payments";
    record.partition = 0;
    record.payload = payload;
    return record;
  }

  MockBroker mock_;
  std::shared_ptr<ports::Broker> broker_ = open_broker(mock_.settings(), nullptr);
};

TEST_F(RefusedRepeat, of_a_batch_leaves_the_fate_of_its_records_unknown) {
  const auto sender = broker_->open_sender();
  // The first record of a topic is sent alone.
  ASSERT_EQ(sender->send(std::vector{record("0")})[0].kind, FateKind::sent);
  mock_.time_out_produce(1);
  mock_.refuse_produce();
  const auto fates = sender->send(std::vector{record("1"), record("2")});
  EXPECT_EQ(fates[0].kind, FateKind::unknown);
  EXPECT_THAT(fates[0].why,
              AllOf(HasSubstr("payments"), HasSubstr("authorization failed"), HasSubstr("may have stored the record")));
  EXPECT_EQ(fates[1].kind, FateKind::unknown);

  const auto anew = broker_->open_sender()->send(std::vector{record("3")});
  EXPECT_EQ(anew[0].kind, FateKind::refused) << "each of its requests was answered";
  EXPECT_THAT(anew[0].why, Not(HasSubstr("may have stored")));
}

TEST_F(RefusedRepeat, of_a_single_record_is_no_proof_that_it_is_not_stored) {
  const auto producer = broker_->open_producer();
  mock_.time_out_produce(1);
  mock_.refuse_produce();
  try {
    producer->send(record("1"));
    ADD_FAILURE() << "it was not refused";
  } catch (const ports::RecordNotStored& error) {
    ADD_FAILURE() << "taken as not stored: " << error.what();
  } catch (const BrokerError& error) {
    EXPECT_THAT(error.what(), HasSubstr("authorization failed"));
  }
  EXPECT_THROW(broker_->open_producer()->send(record("2")), ports::RecordNotStored);
}

}  // namespace
}  // namespace turnstile::kafka
