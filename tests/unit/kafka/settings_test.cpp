// The defaults that bars depend on, and who overrides them.

#include "settings.hpp"

#include <gtest/gtest.h>

namespace turnstile::kafka {
namespace {

TEST(KafkaSettings, a_member_asks_once_a_second_whether_another_one_joins) {
  EXPECT_EQ(effective({}, "heartbeat.interval.ms"), "1000");
  EXPECT_EQ(effective({{"heartbeat.interval.ms", "500"}}, "heartbeat.interval.ms"), "500");
}

TEST(KafkaSettings, the_prefetch_of_a_partition_is_bounded_in_records_and_bytes) {
  EXPECT_EQ(effective({}, "queued.min.messages"), "10000") << "more take more memory, and gain nothing: the bar memory";
  EXPECT_EQ(effective({}, "queued.max.messages.kbytes"), "16384");
  EXPECT_EQ(effective({{"queued.min.messages", "5"}}, "queued.min.messages"), "5");
}

}  // namespace
}  // namespace turnstile::kafka
