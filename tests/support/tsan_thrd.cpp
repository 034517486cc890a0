// The thread sanitizer knows the threads, mutexes and condition variables of pthread, but not those of C11, which
// Debian's librdkafka uses. The first C11 thread crashes inside the sanitizer's runtime (hazard: tsan-threads), and
// accesses that C11 locks order look unordered.
// These definitions are found before those of libc, and call pthread. In glibc the C11 types are pthread's types under
// other names. Linked under the thread sanitizer only; tsan.supp names the rest that it cannot see.

#include <pthread.h>
#include <threads.h>

#include <cerrno>
#include <cstdint>
#include <memory>

namespace {

static_assert(sizeof(mtx_t) == sizeof(pthread_mutex_t) && sizeof(cnd_t) == sizeof(pthread_cond_t));

pthread_mutex_t* native(mtx_t* mutex) { return reinterpret_cast<pthread_mutex_t*>(mutex); }
pthread_cond_t* native(cnd_t* condition) { return reinterpret_cast<pthread_cond_t*>(condition); }

int result_of(int error) {
  switch (error) {
    case 0: return thrd_success;
    case EBUSY: return thrd_busy;
    case ETIMEDOUT: return thrd_timedout;
    case ENOMEM: return thrd_nomem;
    default: return thrd_error;
  }
}

struct Start {
  thrd_start_t run;
  void* argument;
};

void* trampoline(void* raw) {
  const std::unique_ptr<Start> start{static_cast<Start*>(raw)};
  return reinterpret_cast<void*>(static_cast<std::intptr_t>(start->run(start->argument)));
}

}  // namespace

extern "C" {

int thrd_create(thrd_t* thread, thrd_start_t run, void* argument) {
  auto start = std::make_unique<Start>(Start{run, argument});
  const int error = pthread_create(thread, nullptr, trampoline, start.get());
  if (error == 0) (void)start.release();  // the new thread owns it
  return result_of(error);
}

int thrd_join(thrd_t thread, int* result) {
  void* value = nullptr;
  const int error = pthread_join(thread, &value);
  if (error == 0 && result != nullptr) *result = static_cast<int>(reinterpret_cast<std::intptr_t>(value));
  return result_of(error);
}

int mtx_init(mtx_t* mutex, int type) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  if ((type & mtx_recursive) != 0) pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_RECURSIVE);
  const int error = pthread_mutex_init(native(mutex), &attributes);
  pthread_mutexattr_destroy(&attributes);
  return result_of(error);
}
int mtx_lock(mtx_t* mutex) { return result_of(pthread_mutex_lock(native(mutex))); }
int mtx_trylock(mtx_t* mutex) { return result_of(pthread_mutex_trylock(native(mutex))); }
int mtx_unlock(mtx_t* mutex) { return result_of(pthread_mutex_unlock(native(mutex))); }
void mtx_destroy(mtx_t* mutex) { pthread_mutex_destroy(native(mutex)); }

int cnd_init(cnd_t* condition) { return result_of(pthread_cond_init(native(condition), nullptr)); }
int cnd_signal(cnd_t* condition) { return result_of(pthread_cond_signal(native(condition))); }
int cnd_broadcast(cnd_t* condition) { return result_of(pthread_cond_broadcast(native(condition))); }
int cnd_wait(cnd_t* condition, mtx_t* mutex) { return result_of(pthread_cond_wait(native(condition), native(mutex))); }
int cnd_timedwait(cnd_t* condition, mtx_t* mutex, const timespec* until) {
  return result_of(pthread_cond_timedwait(native(condition), native(mutex), until));
}
void cnd_destroy(cnd_t* condition) { pthread_cond_destroy(native(condition)); }

}  // extern "C"
