#pragma once
// The folder of the demo's board, and of its consumers' configuration and logs.

#include <cstdlib>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <system_error>

namespace demo {

/// A folder that is deleted with the demo, unless it is kept.
class Folder {
 public:
  explicit Folder(bool keep) : keep_(keep) {
    std::string pattern = (std::filesystem::temp_directory_path() / "turnstile-demo.XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no folder can be made in " + pattern);
    path_ = pattern;
  }
  ~Folder() {
    std::error_code ignored;
    if (!keep_) std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& path() const { return path_; }
  void keep() { keep_ = true; }

 private:
  std::string path_;
  bool keep_;
};

}  // namespace demo
