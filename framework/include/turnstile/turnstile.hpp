#pragma once
// Includes everything that a program with handlers needs.

#include "turnstile/config.hpp"      // IWYU pragma: export
#include "turnstile/consumer.hpp"    // IWYU pragma: export
#include "turnstile/decorators.hpp"  // IWYU pragma: export
#include "turnstile/error.hpp"       // IWYU pragma: export
#include "turnstile/inbox.hpp"       // IWYU pragma: export
#include "turnstile/poll_loop.hpp"   // IWYU pragma: export
