#include "engine/waiting_messages.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace turnstile::detail {
namespace {

RC_GTEST_PROP(WaitingMessages, is_the_ordered_set_of_those_that_were_added_and_not_taken, ()) {
  WaitingMessages waiting;
  std::set<Seq> model, taken;
  Seq next = 0;
  const auto steps = *rc::gen::container<std::vector<int>>(200, rc::gen::inRange(0, 100));
  for (const int step : steps) {
    if (step < 40 || model.empty()) {
      model.insert(next);
      waiting.push_back(next++);
    } else if (step < 75) {
      taken.insert(*model.begin());
      model.erase(model.begin());
      waiting.pop_front();
    } else if (step < 90 && !taken.empty()) {  // it comes back to its place
      const Seq back = *std::next(taken.begin(), step % static_cast<int>(taken.size()));
      taken.erase(back);
      model.insert(back);
      waiting.insert(back);
    } else {
      const Seq gone = *std::next(model.begin(), step % static_cast<int>(model.size()));
      model.erase(gone);
      waiting.erase(gone);
      waiting.erase(gone);  // it is not there any more
    }
    RC_ASSERT(waiting.size() == model.size());
    RC_ASSERT(waiting.empty() == model.empty());
    if (!model.empty()) RC_ASSERT(waiting.front() == *model.begin());
  }
}

}  // namespace
}  // namespace turnstile::detail
