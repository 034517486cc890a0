// Every shape that a handler may have. Compiled by handler_compile_test.cpp, and so are its neighbours.
#include "turnstile/decorators.hpp"

using namespace turnstile;

Outcome answers(const Message&, Context&) { return Outcome::done(); }
void answers_nothing(const Message&) {}
Outcome takes_a_batch(std::span<const Message>, Context&) { return Outcome::done(); }
void takes_a_batch_and_answers_nothing(std::span<const Message>) {}

Pipeline all[] = {answers | transactional() | limit("psp", 64), answers_nothing, takes_a_batch | batch(100),
                  takes_a_batch_and_answers_nothing, [count = 0](const Message&) mutable { ++count; }};
