// Tokens without any Kafka handler. The programs that use them are members of one domain and own no partitions.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tokens_fixture.hpp"

namespace turnstile::test {
namespace {

using namespace std::chrono_literals;

constexpr int kLimit = 5;
constexpr auto kLease = 3s;

class TokenUsers : public ::testing::Test {
 protected:
  void SetUp() override {
    if (kafka_servers().empty()) GTEST_SKIP() << "no Apache Kafka: TURNSTILE_TEST_KAFKA is not set";
    topic_ = "tokens-" + std::to_string(::getpid()) + "-" + std::to_string(monotonic_ns());
    folder_ = (std::filesystem::temp_directory_path() / ("turnstile-" + topic_)).string();
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override {
    if (!HasFailure() && !folder_.empty()) std::filesystem::remove_all(folder_);
  }

  Process start() const {
    return Process(std::string(TURNSTILE_BIN_DIR) + "/token_user",
                   {kafka_servers(), topic_, "psp", std::to_string(kLimit),
                    std::to_string(std::chrono::milliseconds(kLease).count()), "4", "40", folder_},
                   {}, folder_ + "/output");
  }
  std::string output() const {
    std::ifstream file(folder_ + "/output");
    return {std::istreambuf_iterator<char>(file), {}};
  }
  Outside outside() const { return Outside(folder_, killed_); }
  /// Waits until `count` tokens of living processes are in use at once.
  std::optional<Nanos> out_at_once(int count, Nanos since) const {
    std::optional<Nanos> when;
    static_cast<void>(eventually([&] { return (when = outside().first_with(count, {.from = since})).has_value(); }));
    return when;
  }

  std::string topic_, folder_;
  std::map<pid_t, Nanos> killed_;
};

TEST_F(TokenUsers, share_a_limit_and_what_a_killed_one_held_comes_back_at_its_lease) {
  Process one = start(), other = start(), dies = start();
  ASSERT_TRUE(eventually([&] {
    const Outside now = outside();
    return now.first_with(1, {.pid = one.pid()}) && now.first_with(1, {.pid = other.pid()}) &&
           now.running(dies.pid()) > 0;
  })) << output();
  const auto begun = static_cast<std::size_t>(outside().runs().size());
  ASSERT_TRUE(eventually([&] { return outside().runs().size() > begun + 100; })) << output();
  // The process is killed while it holds a token.
  ASSERT_TRUE(eventually([&] {
    if (outside().running(dies.pid()) == 0) return false;
    dies.signal(SIGKILL);
    dies.wait(5s);
    return true;
  }));
  killed_[dies.pid()] = monotonic_ns();
  const Nanos killed = killed_[dies.pid()];
  const auto all = out_at_once(kLimit, killed + 1);  // without the runs of the killed process itself
  ASSERT_TRUE(all) << output();
  const Nanos over =
      deadlines(read_token_topic(topic_), dies.pid(), 0ms).back() + std::chrono::nanoseconds(kLease).count();
  tell("a killed user of tokens: from its lease's end to all tokens in use", *all - over);
  EXPECT_GE(*all, over) << "sooner than the lease's end";
  EXPECT_LT(*all - over, 5 * kSecond_ns) << output();
  for (Process* process : {&one, &other}) process->signal(SIGTERM);
  for (Process* process : {&one, &other}) EXPECT_EQ(process->wait(20s), 0) << output();
  EXPECT_EQ(outside().most(), kLimit) << "reached, and never exceeded";
  const auto state = replay(read_token_topic(topic_));
  EXPECT_TRUE(state.members.empty()) << "all have left, and hold nothing";
}

}  // namespace
}  // namespace turnstile::test
