// README.md and the pages of docs/ quote code that is compiled, name settings, verbs and files that exist, and link to pages and
// headings that are there. The quickstart's blocks are also run, by tests/package/run.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "cli/src/exit_code.hpp"
#include "config/settings_table.hpp"
#include "tests/support/read_file.hpp"
#include "tests/unit/repository/root.hpp"
#include "tokens/apply.hpp"
#include "tokens/snapshot.hpp"
#include "tokens/wire.hpp"
#include "turnstile/dead_reason.hpp"

namespace {

namespace fs = std::filesystem;

using turnstile::test::read_file;

/// README.md and all of docs/, by the path from the root.
const std::map<std::string, std::string>& pages() {
  static const auto all = [] {
    std::map<std::string, std::string> texts{{"README.md", read_file(root / "README.md")}};
    for (const auto& entry : fs::recursive_directory_iterator{root / "docs"}) {
      if (entry.path().extension() == ".md")
        texts.emplace(fs::relative(entry.path(), root).generic_string(), read_file(entry.path()));
    }
    return texts;
  }();
  return all;
}

const std::string& page(const std::string& name) { return pages().at(name); }

bool any_page_has(const std::string& text) {
  return std::any_of(pages().begin(), pages().end(),
                     [&](const auto& page) { return page.second.find(text) != std::string::npos; });
}

// A fenced block: ```LANGUAGE MARK, as in ```cpp quickstart main.cpp or ```cpp from examples/payments/main.cpp.
struct Block {
  std::string language;
  std::string mark;
  std::string file;
  std::string text;
  std::string where;
};

/// The fenced blocks of a page; what is outside of them goes into `prose`.
std::vector<Block> blocks_of(const std::string& name, const std::string& text, std::string* prose = nullptr) {
  std::vector<Block> all;
  std::istringstream in{text};
  bool inside = false;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (!line.starts_with("```")) {
      if (inside) all.back().text += line + '\n';
      else if (prose != nullptr) *prose += line + '\n';
      continue;
    }
    inside = !inside;
    if (!inside) continue;
    Block block;
    std::istringstream words{line.substr(3)};
    words >> block.language >> block.mark >> block.file;
    block.where = name + ":" + std::to_string(number);
    all.push_back(std::move(block));
  }
  EXPECT_FALSE(inside) << name << ": a fence is not closed";
  return all;
}

std::vector<Block> blocks() {
  std::vector<Block> all;
  for (const auto& [name, text] : pages()) {
    auto of_page = blocks_of(name, text);
    std::move(of_page.begin(), of_page.end(), std::back_inserter(all));
  }
  return all;
}

std::string prose_of(const std::string& name, const std::string& text) {
  std::string prose;
  blocks_of(name, text, &prose);
  return prose;
}

// One line of code, shown at the top, need not be a whole file: all else must be compiled somewhere.
bool is_one_line(const Block& block) { return block.text.find('\n') == block.text.size() - 1; }

TEST(Readme, quotes_code_that_is_compiled) {
  int quoted = 0;
  for (const auto& block : blocks()) {
    if (block.mark == "quickstart" && block.file != "run.sh") {
      EXPECT_EQ(block.text, read_file(root / "examples/quickstart" / block.file)) << block.where;
      ++quoted;
    } else if (block.mark == "from") {
      EXPECT_NE(read_file(root / block.file).find(block.text), std::string::npos)
          << block.where << ": this is not in " << block.file << ":\n"
          << block.text;
      ++quoted;
    } else if (block.language == "cpp") {
      EXPECT_TRUE(is_one_line(block)) << block.where << ": say where this is compiled: ```cpp from FILE";
    }
  }
  EXPECT_GE(quoted, 5);
}

// A program that takes each message once, with a limit and retries, and its settings.
TEST(Readme, has_a_quickstart_of_one_screen) {
  int lines = 0;
  for (const auto& block : blocks()) {
    if (block.mark == "quickstart" && block.file != "run.sh")
      lines += static_cast<int>(std::count(block.text.begin(), block.text.end(), '\n'));
  }
  EXPECT_GT(lines, 20) << "the blocks were not found";
  EXPECT_LE(lines, 50);
}

/// As the site and the repository's viewer make an anchor of a heading: lower case, words joined by hyphens, no punctuation.
std::string anchor_of(const std::string& heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ' || c == '-') anchor += '-';
    else if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_')
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return anchor;
}

std::set<std::string> anchors_in(const std::string& name, const std::string& text) {
  std::set<std::string> anchors;
  std::istringstream lines{prose_of(name, text)};
  for (std::string line; std::getline(lines, line);) {
    const auto level = line.find_first_not_of('#');
    if (level != 0 && level != std::string::npos && line[level] == ' ')
      anchors.insert(anchor_of(line.substr(level + 1)));
  }
  return anchors;
}

TEST(Readme, links_to_files_that_are_there) {
  auto all = pages();
  for (const auto* other :
       {"compose/README.md", "migrations/README.md", "examples/quickstart/README.md", "examples/payments/README.md",
        "examples/own_poll_loop/README.md", "examples/limited_calls/README.md", "examples/ways/README.md",
        "examples/charge_form/README.md", "CHANGELOG.md", "CONTRIBUTING.md", "REQUIREMENTS.md", "SECURITY.md"})
    all.emplace(other, read_file(root / other));
  const std::regex link{R"(\]\(([^)# ]*)(?:#([^)]*))?\))"};
  for (const auto& [name, text] : all) {
    const auto prose = prose_of(name, text);
    for (std::sregex_iterator at{prose.begin(), prose.end(), link}, end; at != end; ++at) {
      const auto target = (*at)[1].str(), anchor = (*at)[2].str();
      if (target.starts_with("http")) continue;
      const auto file = target.empty() ? root / name : (root / name).parent_path() / target;
      if (!fs::exists(file)) {
        ADD_FAILURE() << name << " links to " << target << ", which does not exist";
        continue;
      }
      if (!anchor.empty()) {
        EXPECT_TRUE(anchors_in(target, read_file(file)).contains(anchor))
            << name << " links to " << target << "#" << anchor << ", and that page has no such heading";
      }
    }
  }
}

// The site is made of docs/ alone: what is outside of it is named there by its path, and not linked to.
TEST(Docs, link_to_pages_of_the_site_alone) {
  const std::regex link{R"(\]\(([^)# ]+)(?:#[^)]*)?\))"};
  for (const auto& [name, text] : pages()) {
    if (name == "README.md") continue;
    const auto prose = prose_of(name, text);
    for (std::sregex_iterator at{prose.begin(), prose.end(), link}, end; at != end; ++at) {
      const auto target = (*at)[1].str();
      if (target.starts_with("http")) continue;
      const auto file = ((root / name).parent_path() / target).lexically_normal();
      EXPECT_TRUE(fs::relative(file, root).generic_string().starts_with("docs/"))
          << name << " links to " << target << ": name it by its path, in `code`";
    }
  }
}

TEST(Docs, the_site_and_its_overview_have_every_page) {
  const auto site = read_file(root / "mkdocs.yml");
  for (const auto& [name, text] : pages()) {
    if (name == "README.md") continue;
    const auto inside = name.substr(std::string{"docs/"}.size());
    EXPECT_NE(site.find(": " + inside + "\n"), std::string::npos) << "mkdocs.yml lacks " << inside;
    if (inside != "index.md") {
      EXPECT_NE(page("docs/index.md").find('(' + inside + ')'), std::string::npos) << "docs/index.md lacks " << inside;
    }
  }
}

// `examples/payments`, `framework/src/engine/lane.hpp`, `tests/contract/inbox_*`
TEST(Docs, name_files_that_are_there) {
  const std::regex path{
      R"(`((?:framework|adapters|cli|cmake|compose|docs|examples|migrations|tests)/[A-Za-z0-9_./-]*)(\*?)[^` ]*`)"};
  int named = 0;
  for (const auto& [name, text] : pages()) {
    const auto prose = prose_of(name, text);
    for (std::sregex_iterator at{prose.begin(), prose.end(), path}, end; at != end; ++at) {
      const fs::path file = root / (*at)[1].str();
      if ((*at)[2].length() == 0) {
        EXPECT_TRUE(fs::exists(file)) << name << " names " << (*at)[1] << ", which does not exist";
      } else {
        EXPECT_TRUE(fs::exists(file.parent_path())) << name << " names " << (*at)[0] << ", which does not exist";
      }
      ++named;
    }
  }
  EXPECT_GT(named, 30);
}

// `TransactionalRun::commit`, `Outcome::done()`: both names are in the sources.
TEST(Docs, name_functions_that_exist) {
  static const std::regex function{R"(`(\w+)::(\w+))"};
  std::set<std::string> known;
  for (const auto* folder : {"framework", "adapters", "cli", "examples", "tests"}) {
    for (const auto& entry : fs::recursive_directory_iterator{root / folder}) {
      const auto kind = entry.path().extension();
      if (kind != ".hpp" && kind != ".cpp") continue;
      const auto text = read_file(entry.path());
      for (std::size_t at = 0, end = 0; at < text.size(); at = end + 1) {
        end = at;
        while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 || text[end] == '_'))
          ++end;
        if (end > at) known.insert(text.substr(at, end - at));
      }
    }
  }
  int named = 0;
  for (const auto& [name, text] : pages()) {
    for (std::sregex_iterator at{text.begin(), text.end(), function}, end; at != end; ++at) {
      for (const auto& each : {(*at)[1].str(), (*at)[2].str()})
        EXPECT_TRUE(known.contains(each)) << name << " names " << (*at)[0] << "`, and nothing is called " << each;
      ++named;
    }
  }
  EXPECT_GT(named, 50);
}

TEST(Docs, the_readme_has_at_most_150_lines) {
  const std::string readme = page("README.md");
  EXPECT_LE(std::count(readme.begin(), readme.end(), '\n'), 150);
}

// Every label of the picture's source, line by line, is a text of the SVG that was drawn from it.
TEST(Docs, the_picture_is_drawn_from_its_source) {
  const auto source = read_file(root / "docs/picture.dot");
  // Graphviz writes a hyphen as an entity.
  const auto picture = std::regex_replace(read_file(root / "docs/picture.svg"), std::regex{"&#45;"}, "-");
  const std::regex label{R"re(label="((?:[^"\\]|\\.)*)")re"};
  int texts = 0;
  for (std::sregex_iterator at{source.begin(), source.end(), label}, end; at != end; ++at) {
    const auto escaped = (*at)[1].str();
    std::string line;
    const auto look = [&] {
      EXPECT_NE(picture.find('>' + line + "</text>"), std::string::npos)
          << "docs/picture.svg lacks \"" << line << "\": dot -Tsvg docs/picture.dot -o docs/picture.svg";
      line.clear();
      ++texts;
    };
    for (std::size_t i = 0; i < escaped.size(); ++i) {
      if (escaped[i] == '\\' && i + 1 < escaped.size()) {
        ++i;
        if (escaped[i] == 'n') look();
        else if (escaped[i] == '"') line += "&quot;";
      } else if (escaped[i] == '&') {
        line += "&amp;";
      } else {
        line += escaped[i];
      }
    }
    look();
  }
  EXPECT_GT(texts, 10);
}

// One word for each thing, each once, in alphabetical order; no word that is not to be used is an entry.
TEST(Docs, the_glossary_has_each_word_once) {
  const std::regex row{R"(^\| ([a-z][^|]*) \| [^|]+ \| ([^|]+) \|$)"};
  std::vector<std::string> words;
  std::istringstream lines{page("docs/glossary.md")};
  for (std::string line; std::getline(lines, line);) {
    std::smatch found;
    if (std::regex_match(line, found, row) && found[1] != "word") words.push_back(found[1]);
  }
  EXPECT_GT(words.size(), 50U);
  EXPECT_TRUE(std::is_sorted(words.begin(), words.end()));
  EXPECT_EQ(std::adjacent_find(words.begin(), words.end()), words.end());
}

bool names(const std::string& key) {
  return page("docs/reference/configuration.md").find('`' + key + '`') != std::string::npos;
}

TEST(Readme, names_every_setting) {
  for (const auto& key : turnstile::detail::postgres_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[postgres] " << key.name;
  for (const auto& key : turnstile::detail::consumer_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[consumer] " << key.name;
  for (const auto& key : turnstile::detail::limits_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[limits] " << key.name;
  for (const auto& key : turnstile::detail::log_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[log] " << key.name;
  for (const auto& key : turnstile::detail::tracing_keys())
    EXPECT_TRUE(names(std::string{key.name})) << "[tracing] " << key.name;
  for (const auto& key : turnstile::detail::topic_keys()) {
    const std::string name{key.name};
    EXPECT_TRUE(names(name.substr(0, name.find('.')))) << "[topics.NAME] " << name;
  }
}

// "about 50 bytes", "25 bytes more for each further limiter"
TEST(Readme, says_how_much_a_member_says) {
  using namespace turnstile::tokens;
  EXPECT_TRUE(any_page_has("about 50 bytes"));
  const auto keep_of = [](int limiters) {
    Keep keep;
    for (int i = 0; i < limiters; ++i)
      keep.lines.push_back(
          {.limiter = "psp-" + std::to_string(i), .limit = 64, .wants = 16, .busy = 12, .given_back = 100'000});
    return encode({.member = ~MemberId{0}, .epoch = 1, .seq = 100'000, .body = keep}).size();
  };
  EXPECT_NEAR(static_cast<double>(keep_of(1)), 50, 10);
  EXPECT_NEAR(static_cast<double>(keep_of(11) - keep_of(1)) / 10, 25, 5);
}

// "1,000 processes with 10 limiters make 0.4 MB"
TEST(Readme, says_how_large_a_domain_may_be) {
  using namespace turnstile::tokens;
  EXPECT_TRUE(any_page_has("1,000 processes with 10"));
  State state;
  Position position = 100'000'000;
  for (MemberId id = 1; id <= 1'000; ++id) {
    const MemberId member = id * 0x9e3779b97f4a7c15;
    apply(state, ++position,
          {.member = member,
           .epoch = 1,
           .seq = 1,
           .body = Joined{.host = "host-4711.example.net", .pid = 4'711, .client = "payments", .lease_ms = 10'000}});
    Keep keep;
    for (int i = 0; i < 10; ++i)
      keep.lines.push_back({.limiter = "psp-" + std::to_string(i), .limit = 5'000, .wants = 5});
    apply(state, ++position, {.member = member, .epoch = 1, .seq = 2, .body = keep});
  }
  ASSERT_EQ(state.members.size(), 1'000U);
  ASSERT_EQ(state.limiters.at("psp-0").held(), 5'000U);
  EXPECT_NEAR(static_cast<double>(save(state).size()), 0.4e6, 0.05e6);
}

TEST(Readme, names_every_decorator) {
  const auto header = read_file(root / "framework/include/turnstile/decorators.hpp");
  const std::regex factory{R"(\n(?:inline )?auto ([a-z_]+)\()"};
  int found = 0;
  for (std::sregex_iterator at{header.begin(), header.end(), factory}, end; at != end; ++at) {
    EXPECT_NE(page("docs/reference/decorators.md").find("| `" + (*at)[1].str() + '('), std::string::npos)
        << (*at)[1] << " is not in the table of decorators";
    ++found;
  }
  EXPECT_GE(found, 12);
}

/// The first group of each match.
std::set<std::string> all_of(const std::string& text, const std::regex& pattern) {
  std::set<std::string> found;
  for (std::sregex_iterator at{text.begin(), text.end(), pattern}, end; at != end; ++at) found.insert((*at)[1]);
  return found;
}

// `turnstile inbox inspect ID` in any page is a verb of the program, and each verb is in the table.
TEST(Docs, name_verbs_that_exist) {
  std::set<std::string> verbs;
  for (const auto& entry : fs::directory_iterator{root / "cli/src"}) {
    if (entry.path().extension() != ".cpp") continue;
    static const std::regex verb{R"re(add_verb\(\s*"([a-z-]+)")re"};
    verbs.merge(all_of(read_file(entry.path()), verb));
  }
  EXPECT_GT(verbs.size(), 20U);
  static const std::regex named{
      R"((?:^|[`\n ])turnstile ((?:migrate|config|doctor|inbox|dlq|outbox|limits|permits|log)(?: [a-z]+)?)[ `\n])"};
  for (const auto& [name, text] : pages()) {
    for (const auto& call : all_of(text, named)) {
      std::istringstream words{call};
      for (std::string word; words >> word;) {
        EXPECT_TRUE(verbs.contains(word)) << name << " names `turnstile " << call << "`, and there is no verb " << word;
      }
    }
  }
  for (const auto& verb : verbs)
    EXPECT_NE(page("docs/reference/cli.md").find(verb), std::string::npos) << "the command line's page lacks " << verb;
}

// Each option of the program is in its page, and each header that messages may have is in some page.
TEST(Docs, name_every_option_and_every_header) {
  std::set<std::string> options, headers;
  for (const auto& entry : fs::directory_iterator{root / "cli/src"}) {
    static const std::regex option{R"re(add_(?:option|flag)\(\s*"(?:-[a-z],)?(-[a-z]|--[a-z-]+)")re"};
    options.merge(all_of(read_file(entry.path()), option));
  }
  EXPECT_GT(options.size(), 20U);
  for (const auto& option : options)
    EXPECT_NE(page("docs/reference/cli.md").find('`' + option), std::string::npos) << option;
  for (const auto* file :
       {"src/message/request_headers.cpp", "src/message/reply.cpp", "include/turnstile/replay.hpp"}) {
    static const std::regex header{R"re(\bk[A-Z][A-Za-z]+(?: =|)\{? ?(?:"[^"]+", )?"([A-Za-z_]+[-_][A-Za-z-]+)")re"};
    headers.merge(all_of(read_file(root / "framework" / file), header));
  }
  EXPECT_GE(headers.size(), 10U);
  for (const auto& header : headers) EXPECT_TRUE(any_page_has('`' + header)) << header;
}

// Each reason for which the code makes a dead letter has its row.
TEST(Docs, name_every_reason_of_a_dead_letter) {
  for (const auto reason : turnstile::dead_reasons()) {
    const std::string row = "| `" + std::string(turnstile::to_text(reason)) + "` |";
    EXPECT_NE(page("docs/reference/dead-letter-reasons.md").find(row), std::string::npos) << row;
  }
}

// Each table that the migrations make, and each type of error, has its row.
TEST(Docs, name_every_table_and_every_error) {
  std::set<std::string> tables;
  for (const auto& entry : fs::directory_iterator{root / "migrations"}) {
    static const std::regex table{R"(\nCREATE TABLE ([a-z_]+) )"};
    if (entry.path().filename().string().ends_with(".up.sql"))
      tables.merge(all_of('\n' + read_file(entry.path()), table));
  }
  EXPECT_GT(tables.size(), 15U);
  for (const auto& table : tables)
    EXPECT_NE(page("docs/reference/postgres-schema.md").find('`' + table + '`'), std::string::npos) << table;
  static const std::regex error{R"(\nstruct ([A-Za-z]+) : )"};
  const auto errors = all_of(read_file(root / "framework/include/turnstile/error.hpp"), error);
  EXPECT_GT(errors.size(), 10U);
  for (const auto& each : errors)
    EXPECT_NE(page("docs/reference/errors.md").find("| `" + each + "` |"), std::string::npos) << each;
}

TEST(Readme, names_every_exit_code) {
  // "  3  Kafka or PostgreSQL cannot be reached…"
  const std::string codes = turnstile::cli::kExitCodes;
  const std::regex line{R"(\n  ([0-9])  ([A-Za-z]+))"};
  int found = 0;
  for (std::sregex_iterator at{codes.begin(), codes.end(), line}, end; at != end; ++at) {
    EXPECT_TRUE(
        std::regex_search(page("docs/reference/cli.md"), std::regex{"[ \n]" + (*at)[1].str() + " " + (*at)[2].str()}))
        << (*at)[0];
    ++found;
  }
  EXPECT_EQ(found, 5);
}

TEST(Docs, no_text_has_the_marks_of_an_unfinished_merge) {
  std::vector<std::string> files;
  for (const auto& [name, text] : pages()) files.push_back(name);
  for (const auto& entry : fs::directory_iterator{root}) {
    if (entry.path().extension() == ".md") files.push_back(entry.path().filename().string());
  }
  for (const std::string& file : files) {
    const std::string text = "\n" + read_file(root / file);
    for (const char* mark : {"\n<<<<<<< ", "\n=======\n", "\n>>>>>>> "})
      EXPECT_EQ(text.find(mark), std::string::npos) << file << " has a line" << mark;
  }
}

}  // namespace
