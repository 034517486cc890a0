// The sources of migrations: this library, or a folder.

#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>
#include <sstream>

#include "migrations/embedded_migrations.hpp"
#include "turnstile/error.hpp"
#include "turnstile/postgres/migrations.hpp"

namespace turnstile::postgres {

namespace {

std::string sha256_hex(std::string_view text) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  if (EVP_Digest(text.data(), text.size(), digest, &size, EVP_sha256(), nullptr) != 1)
    throw Error(Code::unexpected, "SHA-256 failed");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) {
    for (const int nibble : {digest[i] >> 4, digest[i] & 15}) hex += "0123456789abcdef"[nibble];
  }
  return hex;
}

bool cut_suffix(std::string_view& text, std::string_view suffix) {
  if (text.size() < suffix.size() || text.substr(text.size() - suffix.size()) != suffix) return false;
  text.remove_suffix(suffix.size());
  return true;
}

/// "-- Builds from migration 11 on can run with this schema." at the start of a file. Absent: 0.
int builds_from_first_line(std::string_view text) {
  constexpr std::string_view kBefore = "-- Builds from migration ", kAfter = " on can run with this schema.\n";
  if (!text.starts_with(kBefore)) return 0;
  text.remove_prefix(kBefore.size());
  int number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return 0;
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return text.starts_with(kAfter) ? number : 0;
}

/// Pairs up files with down files.
class Pairing {
 public:
  void add(const std::string& file, std::string text) {
    std::string_view stem = file;
    const bool down = cut_suffix(stem, ".down.sql");
    if (!down && !cut_suffix(stem, ".up.sql")) {
      problems_.push_back(file + ": the name of a migration must end in .up.sql or .down.sql");
      return;
    }
    const auto digits = std::min(stem.find_first_not_of("0123456789"), stem.size());
    if (digits == 0 || digits > 9 || digits + 1 >= stem.size() || stem[digits] != '_') {
      problems_.push_back(file + ": the name of a migration must begin with its number, as in 0001_inbox.up.sql");
      return;
    }
    auto& migration = found_[std::string(stem)];
    migration.number = std::stoi(std::string(stem.substr(0, digits)));
    migration.name = stem.substr(digits + 1);
    if (down) {
      migration.down = std::move(text);
    } else {
      migration.up_file = file;
      migration.checksum = sha256_hex(text);
      const int from = builds_from_first_line(text);
      migration.builds_from = from > 0 && from < migration.number ? from : migration.number;
      migration.up = std::move(text);
    }
  }

  std::vector<Migration> all() {
    std::vector<Migration> ordered;
    for (auto& [stem, migration] : found_) {
      if (migration.up_file.empty())
        problems_.push_back(stem + ".up.sql: is missing, although there is " + stem + ".down.sql");
      else if (migration.down.empty())
        problems_.push_back(stem + ".down.sql: is missing or empty, although there is " + stem + ".up.sql");
      ordered.push_back(std::move(migration));
    }
    std::stable_sort(ordered.begin(), ordered.end(), [](const auto& a, const auto& b) { return a.number < b.number; });
    for (std::size_t i = 0; i < ordered.size(); ++i) {
      if (ordered[i].number == static_cast<int>(i) + 1) continue;
      problems_.push_back("migration " + std::to_string(i + 1) + " is missing, or two migrations have the same number");
      break;
    }
    if (!problems_.empty()) throw ConfigError(std::move(problems_));
    return ordered;
  }

 private:
  std::map<std::string, Migration> found_;
  std::vector<std::string> problems_;
};

}  // namespace

const std::vector<Migration>& embedded_migration_list() {
  static const std::vector<Migration> all = [] {
    Pairing pairing;
    for (const EmbeddedMigration& file : embedded_migrations())
      pairing.add(std::string(file.name), std::string(file.text));
    return pairing.all();
  }();
  return all;
}

std::vector<Migration> read_migrations(const std::filesystem::path& folder) {
  std::error_code error;
  std::filesystem::directory_iterator files(folder, error);
  if (error) throw ConfigError({folder.string() + ": cannot be read: " + error.message()});
  Pairing pairing;
  for (const auto& entry : files) {
    if (!entry.is_regular_file() || entry.path().extension() != ".sql") continue;
    if (entry.path().filename() == "roles.sql") continue;  // run by hand, as the owner
    std::ifstream in(entry.path(), std::ios::binary);
    std::ostringstream text;
    text << in.rdbuf();
    if (!in) throw ConfigError({entry.path().string() + ": cannot be read"});
    pairing.add(entry.path().filename().string(), text.str());
  }
  auto all = pairing.all();
  if (all.empty()) throw ConfigError({folder.string() + ": has no migrations (NUMBER_NAME.up.sql)"});
  return all;
}

}  // namespace turnstile::postgres
