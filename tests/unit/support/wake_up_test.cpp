// Callbacks that outlive the object that they wake.

#include "support/wake_up.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <utility>

namespace turnstile::detail {
namespace {

struct Sleeper {
  int woken = 0;
};

TEST(WakeUp, calls_the_object_while_it_is_attached) {
  WakeUp<Sleeper> wake_up;
  Sleeper sleeper;
  const auto wake = [](Sleeper& woken) { ++woken.woken; };
  wake_up.call(wake);
  EXPECT_EQ(sleeper.woken, 0);
  wake_up.attach(sleeper);
  wake_up.call(wake);
  wake_up.call(wake);
  EXPECT_EQ(sleeper.woken, 2);
  wake_up.detach();
  wake_up.call(wake);
  EXPECT_EQ(sleeper.woken, 2);
}

TEST(WakeUp, one_call_is_enough_until_the_object_has_heard_it) {
  WakeUp<Sleeper> wake_up;
  Sleeper sleeper;
  wake_up.attach(sleeper);
  const auto wake = [](Sleeper& woken) { ++woken.woken; };
  wake_up.call_once(wake);
  wake_up.call_once(wake);
  EXPECT_EQ(sleeper.woken, 1);
  wake_up.heard();
  wake_up.call_once(wake);
  EXPECT_EQ(sleeper.woken, 2);
}

TEST(WakeUp, its_end_waits_for_a_call_in_progress) {
  const auto wake_up = std::make_shared<WakeUp<Sleeper>>();
  auto sleeper = std::make_unique<Sleeper>();
  wake_up->attach(*sleeper);
  std::promise<void> begun, go_on;
  auto call = std::async(std::launch::async, [&] {
    wake_up->call([&](Sleeper& woken) {
      begun.set_value();
      go_on.get_future().wait();
      ++woken.woken;
    });
  });
  begun.get_future().wait();
  auto end = std::async(std::launch::async, [&] {
    wake_up->detach();
    const int woken = sleeper->woken;
    sleeper.reset();
    return woken;
  });
  go_on.set_value();
  EXPECT_EQ(end.get(), 1);
  call.get();
}

TEST(WakeUp, wakes_from_many_threads_reach_no_object_that_has_ended) {
  const auto wake_up = std::make_shared<WakeUp<std::unique_ptr<int>>>();
  auto number = std::make_unique<int>(0);
  wake_up->attach(number);
  std::atomic<bool> is_over{false};
  std::promise<void> first;
  auto others = std::async(std::launch::async, [&, told = false]() mutable {
    while (!is_over) {
      wake_up->call([](std::unique_ptr<int>& woken) { ++*woken; });
      if (!std::exchange(told, true)) first.set_value();
    }
  });
  first.get_future().wait();
  wake_up->detach();
  EXPECT_GE(*number, 1);
  number.reset();
  is_over = true;
  others.get();
}

}  // namespace
}  // namespace turnstile::detail
