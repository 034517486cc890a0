#pragma once
// A thread that gets no signals. Those of the process go to the program's threads. A write to a connection that the
// collector has closed raises SIGPIPE, which would end the process: cpp-httplib does not turn it off for clients.

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace turnstile::otlp {

template <class Body>
std::thread quiet_thread(Body body) {
  sigset_t all, before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread;
  try {
    thread = std::thread(std::move(body));
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread;
}

}  // namespace turnstile::otlp
