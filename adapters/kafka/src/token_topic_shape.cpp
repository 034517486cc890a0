#include "token_topic_shape.hpp"

#include <fmt/format.h>

#include <thread>

#include "turnstile/error.hpp"

namespace turnstile::kafka {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kNextLook{100};

}  // namespace

TopicShape existing_or_created(const std::string& topic, const std::function<TopicShape()>& look,
                               const std::function<void()>& create, milliseconds most) {
  auto found = look();
  if (found.partitions > 0) return found;
  create();
  for (const auto end = steady_clock::now() + most; (found = look()).partitions == 0;) {
    if (steady_clock::now() >= end)
      throw BrokerError(
          Code::kafka_unavailable,
          fmt::format("topic {} is not visible yet: this process or another one has created it, and a broker does not "
                      "know it after {} ms. Start this process again. If that does not help, check that all brokers "
                      "are well",
                      topic, most.count()));
    std::this_thread::sleep_for(kNextLook);
  }
  return found;
}

}  // namespace turnstile::kafka
