// Who may include whom (docs/internals/architecture.md, "Folders"). Reads the source tree, so that a wrong #include fails
// here with its file, its line and the rule that it breaks.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/repository/root.hpp"

namespace {

namespace fs = std::filesystem;

bool begins_with_any(std::string_view text, std::initializer_list<std::string_view> prefixes) {
  return std::any_of(prefixes.begin(), prefixes.end(), [&](auto prefix) { return text.starts_with(prefix); });
}

/// <vector>, <cstdint>: no folder, no suffix.
bool is_standard(std::string_view header) { return header.find_first_of("/.") == std::string_view::npos; }

/// "kafka" for adapters/kafka/src/x.cpp; empty outside adapters/.
std::string adapter_of(const std::string& file) {
  static const std::regex pattern{"adapters/([^/]+)/.*"};
  std::smatch match;
  return std::regex_match(file, match, pattern) ? match[1].str() : std::string{};
}

/// "kafka" for turnstile/kafka/broker.hpp, when adapters/kafka has that header.
std::string adapter_that_offers(const std::string& header) {
  static const std::regex pattern{"(?:turnstile|adapters)/([^/]+)/.*"};
  std::smatch match;
  if (!std::regex_match(header, match, pattern)) return {};
  const auto name = match[1].str();
  const auto folder = name == "testing" ? std::string{"memory"} : name;
  return fs::is_directory(root / "adapters" / folder) ? folder : std::string{};
}

/// Sources that are divided into folders: from the top, where a folder may know those of the lines below its own.
struct Tree {
  std::string_view root;
  std::vector<std::vector<std::string_view>> layers;

  /// layers.size() for a folder that has no place.
  [[nodiscard]] std::size_t layer_of(std::string_view folder) const {
    const auto at = std::find_if(layers.begin(), layers.end(), [&](const auto& layer) {
      return std::find(layer.begin(), layer.end(), folder) != layer.end();
    });
    return static_cast<std::size_t>(at - layers.begin());
  }
};

const std::vector<Tree> trees{
    {"framework/src/",
     {{"engine"}, {"delivery"}, {"permits", "inbox", "outbox"}, {"support"}, {"tokens", "config"}, {"message"}}},
    {"adapters/postgres/src/", {{"admin"}, {"inbox", "limits", "guards"}, {"migrations"}, {"wire"}}},
};

/// No clock, no thread, no I/O.
const std::vector<std::string_view> pure_folders{"tokens", "config", "message"};
/// Reads the file and the environment.
constexpr std::string_view kTheImpureOne = "framework/src/config/load.cpp";

/// "engine" for framework/src/engine/x.cpp, where `tree` is "framework/src/"; empty outside of it.
std::string folder_in(std::string_view tree, const std::string& file) {
  if (!file.starts_with(tree)) return {};
  const auto rest = file.substr(tree.size());
  return rest.substr(0, rest.find('/'));
}

/// The rule of `tree` that is broken when a file in `folder` includes one of `other`, or empty.
std::string broken_layer(const Tree& tree, std::string_view folder, std::string_view other) {
  const auto mine = tree.layer_of(folder), its = tree.layer_of(other);
  if (mine == tree.layers.size()) {
    return std::string(tree.root) + std::string(folder) +
           " has no place in the order of folders; give it one in structure_test.cpp";
  }
  if (folder == other || its == tree.layers.size() || mine < its) return {};
  return std::string(folder) + " may not know " + std::string(other) +
         ": a folder knows only those below it, in the order of structure_test.cpp";
}

bool reads_as_pure(const std::string& file) {
  const auto folder = folder_in("framework/src/", file);
  if ((folder.empty() && !file.starts_with("cli/src/")) || file == kTheImpureOne) return false;
  if (std::find(pure_folders.begin(), pure_folders.end(), folder) != pure_folders.end()) return true;
  std::ifstream header{(root / file).replace_extension(".hpp")};
  static const std::regex pure{R"re(//.*\bPure\b.*)re"};
  for (std::string line; std::getline(header, line) && (line.starts_with("#pragma") || line.starts_with("//"));) {
    if (std::regex_match(line, pure)) return true;
  }
  return false;
}

/// A file of a pure folder, and one whose header says so of itself in its first comment. Asked of each line, read once for each file.
bool is_pure(const std::string& file) {
  static std::map<std::string, bool> known;
  const auto [it, is_new] = known.try_emplace(file, false);
  if (is_new) it->second = reads_as_pure(file);
  return it->second;
}

/// The rule that `header` in `file` (relative to the root) breaks, or empty.
std::string broken_rule(const std::string& file, const std::string& header) {
  const auto adapter = adapter_of(file);

  if (begins_with_any(header, {"librdkafka/", "rdkafka"}) && adapter != "kafka")
    return "only adapters/kafka includes librdkafka; go through the port turnstile/ports/broker.hpp";
  if (begins_with_any(header, {"pqxx/", "libpq-fe.h", "libpq/", "postgresql/"}) && adapter != "postgres")
    return "only adapters/postgres includes libpqxx and libpq; go through the port turnstile/ports/inbox.hpp";
  const bool serves =
      adapter == "http" || adapter == "admin" || adapter == "otlp" || file == "cli/src/dashboard/server.cpp";
  if (header == "httplib.h" && !serves)
    return "only adapters/http, admin and otlp, and the dashboard include cpp-httplib, which users of the rest need not have";
  const bool parses = file == "cli/src/verb.cpp" || file == "cli/src/main.cpp";
  if (header.starts_with("CLI/") && file.starts_with("cli/") && !parses)
    return "CLI11 takes 3 s to compile in each file that includes it; go through verb.hpp";
  if (begins_with_any(header, {"otlp.pb.h", "opentelemetry/"}) && adapter != "otlp")
    return "only adapters/otlp knows OpenTelemetry; report through turnstile/tracer.hpp";
  if (header.starts_with("prometheus/") && adapter != "prometheus")
    return "only adapters/prometheus includes prometheus-cpp; report through turnstile/observer.hpp";

  const auto offered_by = adapter_that_offers(header);
  if (!adapter.empty() && !offered_by.empty() && offered_by != adapter && adapter != "assembly")
    return "an adapter knows the framework and never another adapter; adapters/assembly joins them";

  if (file.starts_with("framework/")) {
    if (!offered_by.empty()) return "the framework knows no adapter; dependencies point inwards";
    if (file.starts_with("framework/include/") && !is_standard(header) &&
        !(header.starts_with("turnstile/") && fs::exists(root / "framework/include" / header)))
      return "public headers include the standard library and other public headers of the framework, nothing else";
  }

  for (const auto& tree : trees) {
    if (!file.starts_with(tree.root) || is_standard(header)) continue;
    auto rule = broken_layer(tree, folder_in(tree.root, file), header.substr(0, header.find('/')));
    if (!rule.empty()) return rule;
  }
  if (is_pure(file)) {
    static const std::vector<std::string_view> impure{
        "thread", "mutex",   "shared_mutex", "condition_variable", "semaphore",     "latch",        "barrier",
        "future", "fstream", "iostream",     "filesystem",         "unordered_map", "unordered_set"};
    if (std::find(impure.begin(), impure.end(), header) != impure.end())
      return "this file is pure: no thread, no lock, no file, no order that differs from run to run";
    if (begins_with_any(header, {"spdlog/", "sys/", "unistd.h", "signal.h", "csignal"}))
      return "this file is pure: what it has to say goes out as a value";
  }
  if (file.starts_with("framework/src/tokens/") && (header == "chrono" || header == "ctime" || header == "random"))
    return "the token state machine reads no clock and throws no dice: members would come to different states";
  return {};
}

struct Line {
  std::string file;  ///< relative to the root
  int number;
  std::string text;
};

bool is_source(const fs::path& path) { return path.extension() == ".hpp" || path.extension() == ".cpp"; }

std::vector<Line> lines_under(const std::string& folder) {
  std::vector<Line> lines;
  if (!fs::is_directory(root / folder)) return lines;
  for (const auto& entry : fs::recursive_directory_iterator{root / folder}) {
    if (!entry.is_regular_file() || !is_source(entry.path())) continue;
    std::ifstream in{entry.path()};
    std::string text;
    for (int number = 1; std::getline(in, text); ++number)
      lines.push_back({fs::relative(entry.path(), root).generic_string(), number, text});
  }
  return lines;
}

std::string included(const std::string& line) {
  static const std::regex pattern{R"re(\s*#\s*include\s*[<"]([^>"]+)[>"].*)re"};
  std::smatch match;
  return std::regex_match(line, match, pattern) ? match[1].str() : std::string{};
}

TEST(Structure, every_include_points_inwards) {
  int includes = 0;
  for (const auto* folder : {"framework", "adapters", "cli"}) {
    for (const auto& line : lines_under(folder)) {
      const auto header = included(line.text);
      if (header.empty()) continue;
      ++includes;
      const auto rule = broken_rule(line.file, header);
      EXPECT_TRUE(rule.empty()) << line.file << ':' << line.number << ": includes \"" << header << "\", but " << rule;
    }
  }
  EXPECT_GT(includes, 100) << "the sources were not found under " << root;
}

TEST(Structure, pure_files_read_no_clock) {
  int pure = 0;
  for (const auto* folder : {"framework/src", "cli/src"}) {
    for (const auto& line : lines_under(folder)) {
      if (!is_pure(line.file)) continue;
      ++pure;
      const auto code = line.text.substr(0, line.text.find("//"));
      EXPECT_EQ(code.find("clock::now"), std::string::npos)
          << line.file << ':' << line.number << ": reads a clock, but this file is pure: time is an input";
    }
  }
  EXPECT_GT(pure, 5'000);
  for (const auto* file : {"engine/lane.hpp", "engine/lane.cpp", "engine/settled_messages.hpp",
                           "engine/log_identity.cpp", "engine/log_memory.cpp", "delivery/backoff.cpp"})
    EXPECT_TRUE(is_pure(std::string("framework/src/") + file)) << file;
  for (const auto* file : {"fit", "keys", "model", "progress", "screen"})
    EXPECT_TRUE(is_pure(std::string("cli/src/top/") + file + ".cpp")) << file;
  EXPECT_FALSE(is_pure("framework/src/engine/engine.cpp"));
  EXPECT_FALSE(is_pure("cli/src/top/gatherer.cpp"));
}

TEST(Structure, files_stay_short) {
  for (const auto* folder : {"framework", "adapters", "cli", "tests", "examples"}) {
    for (const auto& line : lines_under(folder)) {
      if (line.number == 600)
        ADD_FAILURE() << line.file << ": has 600 lines or more; a file that long holds two things, so split it";
    }
  }
}

TEST(Structure, a_rule_that_is_broken_is_noticed) {
  const auto breaks = [](const char* file, const char* header) { return !broken_rule(file, header).empty(); };

  EXPECT_TRUE(breaks("framework/src/engine/engine.cpp", "librdkafka/rdkafka.h"));
  EXPECT_TRUE(breaks("adapters/postgres/src/inbox/store.cpp", "librdkafka/rdkafka.h"));
  EXPECT_TRUE(breaks("adapters/kafka/src/broker.cpp", "pqxx/pqxx"));
  EXPECT_TRUE(breaks("cli/src/doctor.cpp", "libpq-fe.h"));
  EXPECT_TRUE(breaks("cli/src/doctor.cpp", "httplib.h"));
  EXPECT_TRUE(breaks("cli/src/verb.hpp", "CLI/CLI.hpp"));
  EXPECT_TRUE(breaks("adapters/admin/src/server.cpp", "prometheus/counter.h"));
  EXPECT_TRUE(breaks("adapters/admin/src/server.cpp", "otlp.pb.h"));
  EXPECT_TRUE(breaks("adapters/kafka/src/broker.cpp", "turnstile/postgres/store.hpp"));
  EXPECT_TRUE(breaks("adapters/http/src/tokens.cpp", "turnstile/postgres/guards.hpp"));
  EXPECT_TRUE(breaks("adapters/kafka/src/broker.cpp", "turnstile/testing/broker.hpp"));
  EXPECT_TRUE(breaks("framework/src/engine/engine.cpp", "turnstile/kafka/broker.hpp"));
  EXPECT_TRUE(breaks("framework/include/turnstile/config.hpp", "fmt/format.h"));
  EXPECT_TRUE(breaks("framework/include/turnstile/config.hpp", "message/digest.hpp"));
  EXPECT_TRUE(breaks("framework/src/message/types.cpp", "engine/engine.hpp"));
  EXPECT_TRUE(breaks("framework/src/engine/lane.cpp", "mutex"));
  EXPECT_TRUE(breaks("framework/src/tokens/state.cpp", "chrono"));
  EXPECT_TRUE(breaks("framework/src/config/file.cpp", "fstream"));
  EXPECT_TRUE(breaks("framework/src/message/types.cpp", "tokens/state.hpp"));
  EXPECT_TRUE(breaks("framework/src/config/file.cpp", "tokens/state.hpp"));
  EXPECT_TRUE(breaks("framework/src/delivery/backoff.cpp", "engine/lane.hpp"));
  EXPECT_TRUE(breaks("framework/src/inbox/inbox.cpp", "outbox/relay.hpp"));
  EXPECT_TRUE(breaks("adapters/postgres/src/wire/pool.cpp", "inbox/session.hpp"));
  EXPECT_TRUE(breaks("adapters/postgres/src/inbox/store.cpp", "guards/guards.hpp"));
  EXPECT_TRUE(breaks("framework/src/things/thing.cpp", "message/digest.hpp"));

  EXPECT_FALSE(breaks("adapters/kafka/src/broker.cpp", "librdkafka/rdkafka.h"));
  EXPECT_FALSE(breaks("adapters/postgres/src/inbox/store.cpp", "pqxx/pqxx"));
  EXPECT_FALSE(breaks("adapters/http/src/tokens.cpp", "httplib.h"));
  EXPECT_FALSE(breaks("cli/src/verb.cpp", "CLI/CLI.hpp"));
  EXPECT_FALSE(breaks("cli/src/doctor.cpp", "turnstile/kafka/broker.hpp"));
  EXPECT_FALSE(breaks("adapters/kafka/src/broker.cpp", "turnstile/ports/broker.hpp"));
  EXPECT_FALSE(breaks("framework/src/engine/engine.cpp", "message/digest.hpp"));
  EXPECT_FALSE(breaks("framework/src/tokens/snapshot.cpp", "message/digest.hpp"));
  EXPECT_FALSE(breaks("framework/src/config/load.cpp", "fstream"));
  EXPECT_FALSE(breaks("framework/include/turnstile/config.hpp", "turnstile/types.hpp"));
}

/// The number of lines of each source under `folder`.
std::map<std::string, int> lengths_under(const std::string& folder) {
  std::map<std::string, int> lengths;
  for (const auto& line : lines_under(folder)) lengths[line.file] = std::max(lengths[line.file], line.number);
  return lengths;
}

TEST(Structure, no_file_of_the_framework_has_more_than_400_lines) {
  const auto lengths = lengths_under("framework");
  EXPECT_GT(lengths.size(), 100U) << "the sources were not found under " << root;
  for (const auto& [file, lines] : lengths)
    EXPECT_LE(lines, 400) << file << " has " << lines << " lines: split it by subject";
}

TEST(Structure, no_private_header_has_more_than_150_lines) {
  const auto lengths = lengths_under("framework/src");
  EXPECT_GT(lengths.size(), 100U) << "the sources were not found under " << root;
  for (const auto& [file, lines] : lengths) {
    if (!file.ends_with(".hpp")) continue;
    EXPECT_LE(lines, 150) << file << " has " << lines << " lines: a reader cannot hold that in mind, so split it";
  }
}

bool defines_type(const std::string& line) {
  static const std::regex pattern{R"re((?:class|struct|enum|enum class|union) \w.*)re"};
  return std::regex_match(line, pattern);
}

/// A definition such as `struct Consumer::State`.
bool defines_member(const std::string& line) {
  static const std::regex pattern{R"re((?:class|struct|enum class) \w+::.*)re"};
  return std::regex_match(line, pattern);
}

/// Whether the line may stand in the block `namespace turnstile` of a private file. Only members of public classes are
/// defined there; the bodies of public functions are in sources.
bool belongs_to_programs(const std::string& line, bool is_header) {
  const bool declares = !line.empty() && (std::isalpha(static_cast<unsigned char>(line.front())) != 0);
  return !declares || defines_member(line) || (!is_header && !defines_type(line));
}

/// The namespace that a line at the left margin is in, while a file is read from its top.
class Namespaces {
 public:
  void read(const std::string& line) {
    const bool opens = line.starts_with("namespace ") && line.ends_with("{");
    const bool is_short = line == "}" && lines_ == 1;  // of a block with one declaration
    if (opens) open_.push_back(line);
    if ((line.starts_with("}  // namespace") || is_short) && !open_.empty()) open_.pop_back();
    lines_ = opens ? 0 : lines_ + 1;
  }
  /// Empty in a namespace without a name, which is a file's own.
  [[nodiscard]] std::string name() const {
    std::string all;
    for (const std::string& each : open_) {
      if (each == "namespace {") return "";
      all += each;
    }
    return all;
  }
  [[nodiscard]] bool in_turnstile() const { return !open_.empty() && open_.back() == "namespace turnstile {"; }

 private:
  std::vector<std::string> open_;
  int lines_ = 0;  ///< since the last one that opened a namespace
};

TEST(Structure, private_files_declare_nothing_of_their_own_in_turnstile) {
  std::map<std::string, Namespaces> namespaces;
  for (const auto& line : lines_under("framework/src")) {
    auto& current = namespaces[line.file];
    current.read(line.text);
    if (!current.in_turnstile() || line.text.starts_with("namespace ")) continue;
    EXPECT_TRUE(belongs_to_programs(line.text, line.file.ends_with(".hpp")))
        << line.file << ':' << line.number << ": private parts are declared in turnstile::detail";
  }
  EXPECT_GT(namespaces.size(), 100U) << "the sources were not found under " << root;

  EXPECT_FALSE(belongs_to_programs("class Engine {", false));
  EXPECT_FALSE(belongs_to_programs("void work();", true));
  EXPECT_TRUE(belongs_to_programs("void Consumer::run() {", false));
  EXPECT_TRUE(belongs_to_programs("struct Consumer::State {", false));
}

/// The constant or type that a line at the left margin defines for all files; empty: none.
std::string defined_for_all(const std::string& line) {
  static const std::regex constant{R"(inline (?:constexpr|const) [^=({]*?(\w+)\s*(?:=|\{).*)"};
  static const std::regex type{R"((?:class|struct|enum class|enum|union) (\w+)(?: final)?(?: :.*)? \{.*)"};
  std::smatch match;
  if (std::regex_match(line, match, constant) || std::regex_match(line, match, type)) return match[1].str();
  return "";
}

// The linker keeps one of two, and a file that has inlined its own works. The condition of dead letters once stood in place
// of a statement of the outbox, after an unrelated change.
TEST(Structure, no_two_files_define_one_name_in_a_namespace) {
  std::map<std::string, Namespaces> namespaces;
  std::map<std::string, std::string> first;
  for (const char* folder : {"framework", "adapters", "cli"}) {
    for (const auto& line : lines_under(folder)) {
      auto& current = namespaces[line.file];
      current.read(line.text);
      const std::string name = defined_for_all(line.text);
      if (name.empty() || current.name().empty()) continue;
      const auto [known, is_new] = first.try_emplace(current.name() + " " + name, line.file);
      EXPECT_TRUE(is_new || known->second == line.file)
          << known->first << " is defined in " << known->second << " and in " << line.file << ':' << line.number;
    }
  }
  EXPECT_GT(first.size(), 500U) << "the sources were not found under " << root;
  EXPECT_EQ(defined_for_all("inline constexpr std::string_view kWaiting ="), "kWaiting");
  EXPECT_EQ(defined_for_all("struct Facts {"), "Facts");
  EXPECT_EQ(defined_for_all("struct Facts;"), "");
}

TEST(Structure, headers_of_ports_declare_turnstile_ports) {
  std::map<std::string, bool> declares;
  for (const auto& line : lines_under("framework/include/turnstile/ports")) {
    auto& found = declares[line.file];
    found = found || line.text == "namespace turnstile::ports {";
  }
  EXPECT_GT(declares.size(), 10U) << "the headers were not found under " << root;
  for (const auto& [file, found] : declares)
    EXPECT_TRUE(found) << file << ": what adapters implement is declared in turnstile::ports";
}

// From 0012 on. The row of a migration that earlier builds can run with is in the ledger that they do not read.
TEST(Structure, each_migration_states_which_builds_can_run_with_it) {
  static const std::regex first_line{R"(-- Builds from migration (\d+) on can run with this schema\.\n)"};
  int found = 0;
  for (const auto& entry : fs::directory_iterator{root / "migrations"}) {
    const std::string name = entry.path().filename().string();
    const int number = std::atoi(name.c_str());
    if (number < 12 || !name.ends_with(".up.sql")) continue;
    ++found;
    std::ifstream in{entry.path()};
    const std::string text{std::istreambuf_iterator<char>{in}, {}};
    std::smatch match;
    ASSERT_TRUE(std::regex_search(text, match, first_line) && match.position() == 0) << name;
    const int from = std::stoi(match[1]);
    EXPECT_GE(from, 11) << name;
    EXPECT_LE(from, number) << name;
    const std::string row =
        from < number
            ? "INSERT INTO compatible_migration (number, name, builds_from) VALUES (" + std::to_string(number) + ", "
            : "INSERT INTO migration (number, name) VALUES (" + std::to_string(number) + ", ";
    EXPECT_NE(text.find(row), std::string::npos) << name << " must end with: " << row << "…";
  }
  EXPECT_GE(found, 1);
}

}  // namespace
