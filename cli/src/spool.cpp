#include "spool.hpp"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <system_error>

namespace turnstile::cli {

namespace {

[[noreturn]] void fail() {
  throw std::system_error(errno, std::generic_category(), "the temporary file for the output");
}

}  // namespace

void Spool::add(const Json& element) {
  if (!file_) file_.reset(std::tmpfile());
  if (!file_) fail();
  std::string text = element.dump(2, ' ', false, Json::error_handler_t::replace);
  for (std::size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5) text.insert(at + 1, "    ");
  text.insert(0, size_ == 0 ? "\n    " : ",\n    ");
  if (std::fwrite(text.data(), 1, text.size(), file_.get()) != text.size()) fail();
  ++size_;
}

void Spool::print(const char* name) const {
  fmt::print("  \"{}\": [", name);
  if (file_) {
    std::rewind(file_.get());
    std::array<char, 65536> block{};
    for (std::size_t read = 0; (read = std::fread(block.data(), 1, block.size(), file_.get())) > 0;)
      std::fwrite(block.data(), 1, read, stdout);
  }
  fmt::print("{}]", size_ == 0 ? "" : "\n  ");
}

}  // namespace turnstile::cli
