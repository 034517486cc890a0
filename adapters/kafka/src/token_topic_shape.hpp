#pragma once
// The shape of a topic of the token log, from the answers of brokers that learn of a new topic one after the other.

#include <chrono>
#include <functional>
#include <string>

#include "topics.hpp"

namespace turnstile::kafka {

/// `look` asks a broker for the topic's shape, and `create` creates the topic. If a broker does not know the topic, it
/// is created. The result is the first shape that has partitions: the next broker asked may not know the new topic yet,
/// also if another process has created it. Throws BrokerError if that takes longer than `most`, and what the functions
/// throw.
TopicShape existing_or_created(const std::string& topic, const std::function<TopicShape()>& look,
                               const std::function<void()>& create, std::chrono::milliseconds most);

}  // namespace turnstile::kafka
