#include "turnstile/decorators.hpp"

bool charge(const turnstile::Message&) { return true; }

turnstile::Pipeline pipeline = charge;
