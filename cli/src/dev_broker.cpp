// turnstile dev-broker: librdkafka's mock broker until a signal arrives. The address is the first line on stdout, so
// that a script can read it. Everything else goes to stderr.

#include <fmt/format.h>

#include <charconv>
#include <csignal>
#include <memory>
#include <utility>
#include <vector>

#include "command.hpp"
#include "output.hpp"
#include "text.hpp"
#include "turnstile/kafka/mock.hpp"

namespace turnstile::cli {

namespace {

struct DevBrokerOptions {
  std::vector<std::string> topics;
};

std::pair<std::string, std::int32_t> parse_topic(const std::string& text) {
  const auto colon = text.rfind(':');
  const std::string name = text.substr(0, colon);
  std::int32_t partitions = 1;
  if (colon != std::string::npos) {
    const char* begin = text.data() + colon + 1;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(begin, end, partitions);
    if (error != std::errc{} || rest != end || partitions < 1 || partitions > 1000) partitions = 0;
  }
  if (name.empty() || partitions == 0) {
    throw UsageError(fmt::format("--topic {}: write NAME or NAME:PARTITIONS, as in payments:4 (1 to 1000 partitions)",
                                 one_line(text, 80)));
  }
  return {name, partitions};
}

std::string settings_as_toml(const kafka::Settings& settings) {
  std::string toml = "[kafka]\n";
  for (const auto& [key, value] : settings) toml += fmt::format("\"{}\" = \"{}\"\n", key, value);
  return toml;
}

Exit dev_broker(const DevBrokerOptions& options) {
  std::vector<std::pair<std::string, std::int32_t>> topics;
  for (const auto& text : options.topics) topics.push_back(parse_topic(text));
  // Blocked before librdkafka starts its threads, which inherit the mask: then only sigwait() receives the signals.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);

  kafka::MockBroker broker;
  for (const auto& [name, partitions] : topics) broker.create_topic(name, partitions);
  fmt::print("{}\n", broker.bootstrap_servers());
  std::fflush(stdout);
  tell(fmt::format(
      "librdkafka's mock broker, for development: nothing is kept on disk, and of each partition only the newest 5 MiB.\n"
      "{}Ctrl-C ends it.\n",
      settings_as_toml(broker.settings())));
  int signal = 0;
  sigwait(&signals, &signal);
  return Exit::ok;
}

}  // namespace

void add_dev_broker(Verb app, Command& command) {
  const auto options = std::make_shared<DevBrokerOptions>();
  const auto verb = app.add_verb("dev-broker", "a Kafka broker in memory, for development; prints its address");
  verb.add_option("--topic", options->topics, "create it; may be repeated").type("NAME[:PARTITIONS]").one_value_each();
  verb.runs(command, [options](const Global&) { return dev_broker(*options); });
}

}  // namespace turnstile::cli
