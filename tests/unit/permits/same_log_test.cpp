// A process that is suspended or cut off while its token log may be deleted and created again.

#include "permits/same_log.hpp"

#include <gtest/gtest.h>

#include "tests/unit/permits/divided_fixture.hpp"
#include "tokens/snapshot.hpp"

namespace turnstile::test {
namespace {

using std::chrono::seconds;

/// A process over the parts of a cluster, each of which can be replaced by one of another cluster.
struct Suspended {
  explicit Suspended(seconds lease = seconds(20)) : cluster(with_lease(lease)) {}

  /// It has a permit, and is then suspended for 2 s.
  Permit begin() {
    psp = process.domain->open("psp", 2);
    return std::move(process.take(*psp, 1).front());
  }
  void replace(std::uint32_t part, DividedCluster& by) {
    auto log = testing::open_parts(by.log)(part);
    log->seek(process.members[part]->state().last + 1);
    opened[part]->log = std::move(log);
  }
  void resume() {
    process.suspended += 2'000'000;
    for (int i = 0; i < 20; ++i) process.round();
  }

  static DividedCluster with_lease(seconds lease) {
    DividedCluster made;
    made.settings.lease = lease;
    return made;
  }

  DividedCluster cluster;
  std::map<std::uint32_t, PassedOn*> opened;
  DomainByHand process{[this](std::uint32_t part) {
                         auto log = std::make_unique<PassedOn>(testing::open_parts(cluster.log)(part));
                         opened[part] = log.get();
                         return log;
                       },
                       cluster};
  std::shared_ptr<ports::Limiter> psp;
};

/// Another log of the same name, which is longer.
void write_more_than(const testing::MemoryTokenTopic& old, testing::MemoryTokenTopic& topic) {
  while (topic.end() <= old.end() + 5) topic.append("any record");
}

TEST(SameLog, a_process_that_was_suspended_goes_on_in_its_log) {
  Suspended suspended;
  const Permit held = suspended.begin();
  const auto member = suspended.process.members[0]->member().id();
  suspended.cluster.log->part(0)->append("written meanwhile");
  suspended.resume();
  EXPECT_EQ(suspended.process.domain->halted(), "");
  EXPECT_EQ(suspended.process.members[0]->state().last + 1, suspended.cluster.log->part(0)->end());
  EXPECT_EQ(suspended.process.members[0]->member().id(), member);
  EXPECT_TRUE(held.holds());
  EXPECT_EQ(suspended.process.take(*suspended.psp, 1).size(), 1U);
}

TEST(SameLog, a_process_that_was_suspended_halts_in_another_log) {
  Suspended suspended;
  const Permit held = suspended.begin();
  DividedCluster other;
  const auto domain = other.join();
  const auto used = take_all(*domain->open("psp", 2), 2);
  write_more_than(*suspended.cluster.log->part(0), *other.log->part(0));
  suspended.replace(0, other);
  suspended.resume();
  EXPECT_NE(suspended.process.domain->halted().find("another record than before"), std::string::npos)
      << suspended.process.domain->halted();
  EXPECT_TRUE(held.lost().stop_requested());
}

TEST(SameLog, so_does_one_that_was_cut_off) {
  Suspended suspended(seconds(2));
  const Permit held = suspended.begin();
  DividedCluster other, empty;
  write_more_than(*suspended.cluster.log->part(0), *other.log->part(0));
  suspended.replace(0, empty);  // as a broker that does not answer
  for (int i = 0; i < 30; ++i) {
    suspended.process.suspended += 100'000;
    suspended.process.round();
  }
  suspended.replace(0, other);
  suspended.resume();
  EXPECT_NE(suspended.process.domain->halted(), "");
}

/// The others agreed on a snapshot of just that position.
TEST(SameLog, a_process_goes_on_if_its_last_record_was_trimmed) {
  Suspended suspended;
  const Permit held = suspended.begin();
  const auto topic = suspended.cluster.log->part(0);
  topic->save(tokens::save(suspended.process.members[0]->state()));
  topic->cut(topic->end());
  topic->append("the first that is left");
  suspended.resume();
  EXPECT_EQ(suspended.process.domain->halted(), "");
  EXPECT_EQ(suspended.process.members[0]->state().last + 1, topic->end());
  EXPECT_TRUE(held.holds());
}

/// As after a deletion of all topics: part 0 is a directory that nobody writes, so it has read nothing since it started.
TEST(SameLog, a_state_that_came_from_a_snapshot_is_read_again) {
  DividedCluster cluster;
  cluster.divide();
  const auto topic = cluster.log->part(0);
  topic->save(tokens::save(newest_state(*cluster.log, 0)));
  DomainByHand process(testing::open_parts(cluster.log), cluster);
  process.round();
  tokens::State other = newest_state(*cluster.log, 0);
  process.suspended += 2'000'000;
  process.round();
  process.round();
  EXPECT_EQ(process.domain->halted(), "");
  ++other.division;
  topic->append("of another division");
  ++other.last;
  topic->save(tokens::save(other));
  process.suspended += 2'000'000;
  for (int i = 0; i < 5; ++i) process.round();
  EXPECT_NE(process.domain->halted().find("another division"), std::string::npos) << process.domain->halted();
}

/// A log of which each snapshot takes a while to read.
struct SlowSnapshots final : PassedOn {
  using PassedOn::PassedOn;
  std::optional<Snapshot> snapshot(std::int64_t before) override {
    while_reading();
    return log->snapshot(before);
  }

  std::function<void()> while_reading = [] {};
};

TEST(SameLog, a_slow_snapshot_is_no_suspension) {
  DividedCluster cluster;
  cluster.settings.lease = seconds(20);
  SlowSnapshots* opened = nullptr;
  DomainByHand process(
      [&](std::uint32_t part) {
        auto log = std::make_unique<SlowSnapshots>(testing::open_parts(cluster.log)(part));
        opened = log.get();
        return log;
      },
      cluster);
  const auto psp = process.domain->open("psp", 2);
  process.take(*psp, 1).clear();
  const auto topic = cluster.log->part(0);
  tokens::State state = newest_state(*cluster.log, 0);
  topic->append("read by others only");
  ++state.last;
  topic->save(tokens::save(state));
  topic->cut(topic->end());
  topic->append("the first that is left");
  process.suspended += 2'000'000;
  int read = 0;
  opened->while_reading = [&] {
    process.suspended += 2'000'000;
    ++read;
  };
  for (int i = 0; i < 20; ++i) process.round();
  EXPECT_EQ(process.domain->halted(), "");
  EXPECT_EQ(read, 1);
  const auto& member = *process.members[0];
  EXPECT_TRUE(member.state().members.contains(member.member().id())) << "it goes on as a new member";
}

/// A member that was granting is told twice that it knows nothing: by the clock, and when its pools close.
TEST(SameLog, a_process_that_was_suspended_writes_nothing_before_its_last_record) {
  Suspended suspended;
  const Permit held = suspended.begin();
  const auto topic = suspended.cluster.log->part(0);
  const auto end = topic->end();
  DividedCluster empty;
  suspended.replace(0, empty);  // as a broker that does not answer
  suspended.process.suspended += 2'000'000;
  for (int i = 0; i < 9; ++i) {
    suspended.process.round();
    suspended.process.suspended += 100'000;
  }
  EXPECT_EQ(empty.log->part(0)->end(), 0);
  EXPECT_EQ(topic->end(), end);
}

TEST(SameLog, a_part_of_another_division_halts_all) {
  Suspended suspended;
  const std::uint32_t home = tokens::part_of("psp", kParts);
  suspended.begin().give_back();
  suspended.cluster.divide();
  suspended.process.take(*suspended.psp, 2).clear();
  DividedCluster other;
  other.divide();
  const auto domain = other.join();
  take_all(*domain->open("psp", 2), 2).clear();
  write_more_than(*suspended.cluster.log->part(home), *other.log->part(home));
  suspended.replace(home, other);
  suspended.resume();
  EXPECT_NE(suspended.process.domain->halted(), "");
  EXPECT_NE(suspended.process.members[0]->halted(), "");
}

}  // namespace
}  // namespace turnstile::test
