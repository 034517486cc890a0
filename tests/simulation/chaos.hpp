#pragma once
// What goes wrong, and what people do, while chaos lasts.

#include "tests/simulation/world.hpp"

namespace turnstile::simulation {

class Chaos {
 public:
  explicit Chaos(World& world) : world_(world), steps_(world.plan().seed ^ 2), random_(0) {}

  /// Does something, and comes back soon, until chaos is over.
  void go_on();

 private:
  void change_work(Process& process);
  void stop_using(Process& process);
  void pause(Process& process);
  void cut(Process& process);
  void end(Process& process, Fault how);
  void copy_a_record();
  void write_garbage();
  void forge();
  void set_a_limit();
  void set_the_version();
  tokens::Event in_the_name_of(const Process& process);
  tokens::Event by_a_stranger();

  World& world_;
  Random steps_;
  Random random_;  ///< of this step: what one does not do leaves the others as they are, which helps to shrink a plan
  tokens::MemberId phantom_ = 0;  ///< a stranger that has joined, and the next thing it says
  std::uint64_t phantom_seq_ = 0;
};

}  // namespace turnstile::simulation
