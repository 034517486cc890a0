#include "turnstile/decorators.hpp"

void charge(const turnstile::Message&) {}

struct Sieve {};

turnstile::Pipeline pipeline = charge | Sieve{};
