#include "turnstile/health.hpp"

namespace turnstile {

std::string_view to_text(Health::State state) {
  switch (state) {
    case Health::State::idle: return "idle";
    case Health::State::starting: return "starting";
    case Health::State::waiting: return "waiting";
    case Health::State::running: return "running";
    case Health::State::stopping: return "stopping";
    case Health::State::stopped: return "stopped";
    case Health::State::halted: return "halted";
  }
  return "";
}

}  // namespace turnstile
