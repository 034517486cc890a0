#include "turnstile/kafka/version.hpp"

#include <librdkafka/rdkafka.h>

namespace turnstile::kafka {

std::string library_version() { return rd_kafka_version_str(); }

}  // namespace turnstile::kafka
