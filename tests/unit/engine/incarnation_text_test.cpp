// The text that is committed with the group's offset.

#include "engine/incarnation_text.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace turnstile::detail {
namespace {

TEST(IncarnationsTest, come_back_as_they_were_written) {
  for (const Incarnations& all : {Incarnations{{0, 0}}, Incarnations{{0, 0}, {1, 800}},
                                  Incarnations{{7, 12}, {1'000'000'000, std::numeric_limits<Offset>::max()}}}) {
    EXPECT_EQ(read_incarnations(write_incarnations(all)), all) << write_incarnations(all);
  }
}

TEST(IncarnationsTest, the_last_eight_are_written) {
  Incarnations all;
  for (std::int32_t i = 0; i < 1'000; ++i) all[i] = std::numeric_limits<Offset>::max();
  const std::string text = write_incarnations(all);
  EXPECT_LT(text.size(), 4'096U) << "Kafka's offset.metadata.max.bytes";
  const auto read = read_incarnations(text);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->size(), 8U);
  EXPECT_EQ(read->rbegin()->first, 999);
}

TEST(IncarnationsTest, are_not_read_from_texts_of_other_programs) {
  for (const char* text : {"", "x", "turnstile", "turnstile:", "turnstile:1", "turnstile:1@", "turnstile:1@2,",
                           "turnstile:1@2x", "turnstile:-1@2", "turnstile:1@-2", "turnstile:99999999999@1",
                           "turnstile:2147483647@0", "turnstile:1@99999999999999999999", " turnstile:1@2", "{\"a\":1}"})
    EXPECT_FALSE(read_incarnations(text)) << text;
  EXPECT_FALSE(read_incarnations(std::string_view("turnstile:1@2\0", 14)));
}

}  // namespace
}  // namespace turnstile::detail
