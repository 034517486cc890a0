#pragma once
// The error of a record that a broker has refused for certain.

#include "turnstile/error.hpp"

namespace turnstile::ports {

/// Thrown by BrokerProducer::send(): the broker does not have the record, and will not store it later. The record can
/// be sent again, and is then stored once. After any other BrokerError of send() the broker may have the record.
struct RecordNotStored : BrokerError {
  using BrokerError::BrokerError;  ///< the codes of a BrokerError
};

}  // namespace turnstile::ports
