#pragma once
// What the store and the broker must have before the handlers of a consumer start.

#include <optional>
#include <string>
#include <vector>

#include "engine/setup.hpp"

namespace turnstile::detail {

/// For a mode in which each group counts offsets and producers' numbers by itself. Throws ConfigError if another group
/// counts under the handler's name.
void check_counting_group(ports::Store& store, HandlerId handler, const TopicPlan& plan, const std::string& group);
/// For a handler without a name of its own. Throws ConfigError if another group keeps ids under the topic's name.
void check_first_group(ports::Store& store, HandlerId handler, const std::string& topic, const std::string& group);

/// Throws ConfigError if the mode is not leased and the handler has claims that have not ended: their messages run, or may
/// have taken effect, and the mode would run them without asking. A member of mode leased can make claims at any time, but
/// only in a partition that it owns. So call it at the start and after each claim of partitions.
void check_no_claims(ports::Store& store, HandlerId handler, const TopicPlan& plan);

/// Missing topics are a problem, and so are ids that are kept too briefly. Returns the broker's description of each
/// topic, absent without a broker. `reads`: the records come from this broker; a poll loop may read them from anywhere.
std::vector<std::optional<ports::TopicInfo>> check_broker(const ConsumerSpec& spec, const std::vector<TopicPlan>& plans,
                                                          const std::vector<TopicSettings>& settings,
                                                          const RunLog& run_log, bool reads);

}  // namespace turnstile::detail
