// The thread sanitizer knows pthread_create but not C11's thrd_create, which Debian's librdkafka starts its threads with; the
// first such thread then crashes inside the sanitizer's runtime (trap 29). This definition, found before libc's, goes the
// way that is known. Linked under the thread sanitizer only.

#include <pthread.h>
#include <threads.h>

#include <cstdint>
#include <memory>

namespace {

struct Start {
  thrd_start_t run;
  void* argument;
};

void* trampoline(void* raw) {
  const std::unique_ptr<Start> start{static_cast<Start*>(raw)};
  const auto run = start->run;
  auto* const argument = start->argument;
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(run(argument)));
}

}  // namespace

extern "C" int thrd_create(thrd_t* thread, thrd_start_t run, void* argument) {
  auto start = std::make_unique<Start>(Start{run, argument});
  if (pthread_create(thread, nullptr, trampoline, start.get()) != 0) return thrd_error;
  start.release();  // the new thread owns it
  return thrd_success;
}

extern "C" int thrd_join(thrd_t thread, int* result) {
  void* value = nullptr;
  if (pthread_join(thread, &value) != 0) return thrd_error;
  if (result != nullptr) *result = static_cast<int>(reinterpret_cast<std::intptr_t>(value));
  return thrd_success;
}
