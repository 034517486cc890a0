#pragma once
// Which of Turnstile's codes an error of librdkafka gets: those with one remedy share one.

#include <librdkafka/rdkafka.h>

#include "turnstile/code.hpp"

namespace turnstile::kafka {

[[nodiscard]] Code code_of(rd_kafka_resp_err_t error) noexcept;

}  // namespace turnstile::kafka
