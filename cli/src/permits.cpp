// turnstile permits: the current holders of permits.

#include <fmt/format.h>

#include <chrono>
#include <memory>

#include "command.hpp"
#include "domain.hpp"

namespace turnstile::cli {

namespace {

struct PermitsOptions {
  DomainOptions domain;
  bool all = false;
};

std::int64_t now_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Exit permits(const Global& global, const PermitsOptions& options) {
  return look_at_domain(global, options.domain, [&](TokenReader& reader) {
    reader.start(reader.begin());  // from the beginning, because it needs the times of old records
    reader.read_to(reader.end() - 1);
    const PermitsView view = reader.permits();
    if (global.json) {
      print(Json{{"log", reader.name()}, {"position", view.position}, {"permits", permits_as_json(reader, view)}});
    } else {
      print_permits(reader, view, now_ms(), options.all);
      fmt::print("\n{}\n", where_read(reader, view));
    }
    return Exit::ok;
  });
}

}  // namespace

void add_permits(Verb app, Command& command) {
  const auto options = std::make_shared<PermitsOptions>();
  const auto verb = app.add_verb("permits", "which process holds which permits, since when, and when its lease ends");
  add_domain_options(verb, options->domain);
  verb.add_flag("--all", options->all, "also members that hold and want nothing");
  verb.footer(
      "BUSY and WANTS are as each member last reported; a busy member reports 4 times a lease. LEASE ENDS: its permits return then,\n"
      "unless it reports before, by the clocks of the processes that wrote the log.");
  verb.runs(command, [options](const Global& global) { return permits(global, *options); });
}

}  // namespace turnstile::cli
