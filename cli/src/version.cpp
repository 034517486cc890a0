// turnstile version: includes the versions of the loaded libraries, because a bug report needs them.

#include "turnstile/kafka/version.hpp"

#include <fmt/format.h>

#include "command.hpp"
#include "text.hpp"
#include "turnstile/postgres/admin.hpp"

namespace turnstile::cli {

namespace {

Exit version(const Global& global) {
  const auto postgres = postgres::client_versions();
  const auto kafka = kafka::library_version();
  if (global.json) {
    print(Json{{"turnstile", TURNSTILE_VERSION},
               {"librdkafka", kafka},
               {"libpqxx", postgres.libpqxx},
               {"libpq", postgres.libpq}});
  } else {
    fmt::print("turnstile {}\nlibrdkafka {}, libpqxx {}, libpq {}\n", TURNSTILE_VERSION, kafka, postgres.libpqxx,
               postgres.libpq);
  }
  return Exit::ok;
}

}  // namespace

void add_version(Verb app, Command& command) {
  const auto verb = app.add_verb("version", "the version of this program and of its libraries");
  verb.runs(command, [](const Global& global) { return version(global); });
}

}  // namespace turnstile::cli
