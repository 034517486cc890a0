#include "output.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

namespace turnstile::cli {

void open_missing_descriptors() {
  // open() returns the lowest free descriptor, and those below are open.
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(descriptor, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0) return;
  }
}

void tell(const std::string& text) {
  std::fputs(text.c_str(), stderr);
  std::fflush(stderr);
}

}  // namespace turnstile::cli
