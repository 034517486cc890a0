// The ids that Turnstile makes.

#include "turnstile/ids.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace turnstile {
namespace {

std::int64_t milliseconds_in(const MessageId& id) {
  std::int64_t ms = 0;
  for (int i = 0; i < 6; ++i) ms = ms << 8 | id.bytes[static_cast<std::size_t>(i)];
  return ms;
}

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

TEST(Ids, are_uuids_of_version_7) {
  const std::int64_t before = now_ms();
  const MessageId id = new_message_id();
  EXPECT_EQ(id.text().at(14), '7') << id.text();
  EXPECT_NE(std::string("89ab").find(id.text().at(19)), std::string::npos) << id.text();
  EXPECT_GE(milliseconds_in(id), before);
  // The ids of other tests may have moved the time ahead, by one millisecond for each 4,096 ids.
  EXPECT_LE(milliseconds_in(id), now_ms() + 1'000);
  EXPECT_EQ(MessageId::from(id.text()), id);
}

TEST(Ids, grow_within_a_thread_and_never_repeat_over_threads) {
  constexpr std::size_t kEach = 20'000;
  std::vector<std::vector<MessageId>> made(4);
  std::vector<std::thread> threads;
  for (auto& mine : made) {
    threads.emplace_back([&mine] {
      for (std::size_t i = 0; i < kEach; ++i) mine.push_back(new_message_id());
    });
  }
  for (auto& thread : threads) thread.join();
  std::set<MessageId> all;
  for (const auto& mine : made) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(mine.begin(), mine.end());
  }
  EXPECT_EQ(all.size(), 4 * kEach);
}

TEST(Ids, differ_after_a_fork) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  (void)new_message_id();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const MessageId id = new_message_id();
    ::_exit(::write(pipe[1], id.bytes.data(), 16) == 16 ? 0 : 1);
  }
  const MessageId mine = new_message_id();
  MessageId theirs;
  ASSERT_EQ(::read(pipe[0], theirs.bytes.data(), 16), 16);
  ::waitpid(child, nullptr, 0);
  ::close(pipe[0]);
  ::close(pipe[1]);
  EXPECT_FALSE(std::equal(mine.bytes.begin() + 9, mine.bytes.end(), theirs.bytes.begin() + 9))
      << mine.text() << " and " << theirs.text() << " have the same random part";
}

}  // namespace
}  // namespace turnstile
