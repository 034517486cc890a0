// A consumer as a user would write it, for tests that start, stop, freeze and kill it from outside.
//
//   consumer CONFIG TOPIC SCHEMA
//
// Each message makes one row in SCHEMA.effect. A payload may say what goes wrong: "throw", "throw-int", "sleep:MS",
// "throw-once:FILE" (throws unless FILE exists, and makes it), "stop-once:FILE" (freezes the whole process, likewise),
// "defer" (the row is queued). PUBLISH: a topic; each message publishes its id there, and replies it. EFFECT_MS: how long each message takes. JOURNAL: a folder for its journal (support/journal.hpp).

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>
#include <thread>

#include "support/journal.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

bool first_time(const std::string& file) {
  if (std::ifstream(file)) return false;
  std::ofstream(file) << "here";
  return true;
}

void misbehave(const Message& message) {
  const std::string text(message.text());
  if (text == "throw") throw std::runtime_error("told to throw");
  if (text == "throw-int") throw 42;
  if (text.starts_with("sleep:")) std::this_thread::sleep_for(std::chrono::milliseconds(std::stol(text.substr(6))));
  if (text.starts_with("throw-once:") && first_time(text.substr(11))) throw std::runtime_error("told to throw once");
  if (text.starts_with("stop-once:") && first_time(text.substr(10))) std::raise(SIGSTOP);
}

/// One run of a handler, in the journal if there is one.
class Noted {
 public:
  Noted(test::Journal* journal, const Message& message, const Context& context) : journal_(journal), context_(context) {
    if (journal_ == nullptr) return;
    run_ = journal_->start(message.partition(), context.fence() ? context.fence()->epoch.value : 0, message.offset());
  }
  ~Noted() {
    if (journal_ != nullptr) journal_->end(run_, context_.stop_token().stop_requested());
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  test::Journal* const journal_;
  const Context& context_;
  std::int64_t run_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const std::string sql =
      "INSERT INTO " + std::string(argv[3]) +
      ".effect (id, attempt, pid, record_partition, record_offset, record_key) VALUES ($1, $2, $3, $4, $5, $6)";
  const char* const work_ms = std::getenv("EFFECT_MS");
  const std::chrono::milliseconds work(work_ms == nullptr ? 0 : std::stol(work_ms));
  const char* const publish_to = std::getenv("PUBLISH");
  const char* const journal_folder = std::getenv("JOURNAL");
  const auto journal = journal_folder == nullptr ? nullptr : std::make_unique<test::Journal>(journal_folder);
  const auto handler = [&sql, work, &journal, publish_to](const Message& message, Context& context) {
    const Noted noted(journal.get(), message, context);
    misbehave(message);
    if (work > 0ms) std::this_thread::sleep_for(work);
    const std::string id(message.header("message-id").value_or("none"));
    const auto key = message.key() ? std::optional(std::string(*message.key())) : std::nullopt;
    if (message.text() == "defer") {
      context.defer(sql, id, context.attempt(), ::getpid(), message.partition(), message.offset(), key);
    } else {
      context.tx().exec(sql, id, context.attempt(), ::getpid(), message.partition(), message.offset(), key);
    }
    if (publish_to == nullptr) return;
    OwnedMessage made;
    made.topic = publish_to;
    made.key = key;
    made.payload = id;
    context.publish(made);
    context.reply("re " + id);
  };
  try {
    const Config config = Config::load(argv[1]);
    Backends backends = connect(config);
    if (journal) backends.store = std::make_shared<test::JournalledStore>(backends.store, *journal);
    Consumer app{config, backends};
    app.topic(argv[2], handler | transactional() | retry(exponential{20ms, 3, 200ms}) | dead_letter());
    app.run();
  } catch (const std::exception& e) {
    std::cerr << "consumer: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
