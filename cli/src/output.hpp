#pragma once
// The process's standard descriptors.

#include <string>

namespace turnstile::cli {

/// Opens /dev/null as stdin, stdout and stderr if the parent process closed them. Otherwise a connection could get the
/// descriptor, and output would go into it. Call it before anything opens a descriptor.
void open_missing_descriptors();

/// To stderr, for people. Text that cannot be written is lost, since the exit code reports the result all the same.
void tell(const std::string& text);

}  // namespace turnstile::cli
