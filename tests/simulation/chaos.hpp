#pragma once
// The faults and the operators' actions while chaos lasts.

#include "tests/simulation/world.hpp"

namespace turnstile::simulation {

class Chaos {
 public:
  explicit Chaos(World& world) : world_(world), steps_(world.plan().seed ^ 2), random_(0) {}

  /// Makes a fault, and schedules the next, until chaos is over.
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
  /// The random numbers of this step. A fault that is left out does not change the others, which helps to shrink a
  /// plan.
  Random random_;
  tokens::MemberId phantom_ = 0;  ///< a stranger that has joined, and its next sequence number
  std::uint64_t phantom_seq_ = 0;
};

}  // namespace turnstile::simulation
