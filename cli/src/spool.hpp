#pragma once
// Elements of a JSON list that may be too many for the memory. They wait in a temporary file until the list is printed.

#include <cstdint>
#include <cstdio>
#include <memory>

#include "text.hpp"

namespace turnstile::cli {

class Spool {
 public:
  /// Throws std::system_error if the temporary file cannot be written.
  void add(const Json& element);
  [[nodiscard]] std::int64_t size() const noexcept { return size_; }
  /// To stdout: `  "name": [` and so on, without a comma or a line feed at the end.
  void print(const char* name) const;

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::unique_ptr<std::FILE, Close> file_;  ///< null without elements
  std::int64_t size_ = 0;
};

}  // namespace turnstile::cli
