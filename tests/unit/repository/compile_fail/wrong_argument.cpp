#include "turnstile/decorators.hpp"

void charge(int) {}

turnstile::Pipeline pipeline = charge | turnstile::transactional();
