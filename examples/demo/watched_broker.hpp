#pragma once
// A Broker that only notes on the board which records Kafka delivers. It also shows the use of a port: the framework
// works with it as with the broker that it wraps.

#include <memory>
#include <turnstile/ports/broker.hpp>

#include "board.hpp"
#include "tally.hpp"

namespace demo {

/// `board` and `tally` must outlive the broker.
std::shared_ptr<turnstile::ports::Broker> watched(std::shared_ptr<turnstile::ports::Broker> broker, const Board& board,
                                                  Tally& tally, int consumer);

}  // namespace demo
