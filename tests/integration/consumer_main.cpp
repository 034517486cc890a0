// A consumer as a user would write it, for tests that start, stop, freeze and kill it from outside.
//
//   consumer CONFIG TOPIC SCHEMA
//
// Each message makes one row in SCHEMA.effect. A payload may request a failure:
// "throw", "throw-int": the handler throws.
// "sleep:MS": the handler sleeps.
// "throw-once:FILE": the handler creates FILE and throws, unless FILE exists.
// "sql-throw-once:FILE": the same, after a statement.
// "stop-once:FILE": the handler creates FILE and freezes the whole process, unless FILE exists.
// "abort": the process dies.
// "service:FILE": the handler calls a service, which fails while FILE exists.
// "defer": the row is queued.
// "exec:SQL", "queue:SQL": a statement that goes before the row.
//
// The environment:
// ELSEWHERE: the row is made outside of the message's transaction, as an effect in another system would be.
// PUBLISH: a topic. Each message publishes its id there, and replies its id.
// PUBLISH_IN_MS: that long after the handler, instead of at once.
// EFFECT_MS: how long each message takes.
// HANG: a file. While it exists, an observer does not return from on_status().
// BREAK_ON: the topic has a circuit breaker (break_on()).
// JOURNAL: a folder for the journal (support/journal.hpp).

#include <libpq-fe.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/journal.hpp"
#include "turnstile/turnstile.hpp"

namespace {

using namespace turnstile;
using namespace std::chrono_literals;

bool first_time(const std::string& file) {
  if (std::ifstream(file)) return false;
  std::ofstream(file) << "here";
  return true;
}

void misbehave(const Message& message, Context& context) {
  const std::string text(message.text());
  if (text.starts_with("exec:")) context.tx().exec(text.substr(5));
  if (text.starts_with("queue:")) context.defer(text.substr(6));
  if (text == "throw") throw std::runtime_error("told to throw");
  if (text == "throw-int") throw 42;
  if (text == "abort") std::abort();
  if (text.starts_with("service:") && std::ifstream(text.substr(8)))
    throw std::runtime_error("the service does not answer");
  if (text.starts_with("sleep:")) std::this_thread::sleep_for(std::chrono::milliseconds(std::stol(text.substr(6))));
  if (text.starts_with("throw-once:") && first_time(text.substr(11))) throw std::runtime_error("told to throw once");
  if (text.starts_with("sql-throw-once:") && first_time(text.substr(15))) {
    context.tx().exec("SELECT 1");
    throw std::runtime_error("told to throw once");
  }
  if (text.starts_with("stop-once:") && first_time(text.substr(10))) std::raise(SIGSTOP);
}

/// Each worker has a connection of its own, which commits each statement by itself.
void run_elsewhere(const std::string& url, const std::string& sql, std::vector<std::optional<std::string>> values) {
  thread_local std::unique_ptr<PGconn, decltype(&PQfinish)> connection(PQconnectdb(url.c_str()), &PQfinish);
  if (PQstatus(connection.get()) != CONNECTION_OK) PQreset(connection.get());
  std::vector<const char*> texts;
  for (const auto& value : values) texts.push_back(value ? value->c_str() : nullptr);
  const std::unique_ptr<PGresult, decltype(&PQclear)> result(
      PQexecParams(connection.get(), sql.c_str(), static_cast<int>(texts.size()), nullptr, texts.data(), nullptr,
                   nullptr, 0),
      &PQclear);
  if (PQresultStatus(result.get()) != PGRES_COMMAND_OK) throw std::runtime_error(PQerrorMessage(connection.get()));
}

/// One run of a handler. It is written to the journal if there is one.
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

class HangingObserver final : public Observer {
 public:
  explicit HangingObserver(std::string file) : file_(std::move(file)) {}
  void on_status(const Status&) noexcept override {
    while (std::ifstream(file_)) std::this_thread::sleep_for(100ms);
  }

 private:
  const std::string file_;
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
  const char* const publish_in_ms = std::getenv("PUBLISH_IN_MS");
  const std::chrono::milliseconds publish_in(publish_in_ms == nullptr ? 0 : std::stol(publish_in_ms));
  const char* const journal_folder = std::getenv("JOURNAL");
  const auto journal = journal_folder == nullptr ? nullptr : std::make_shared<test::Journal>(journal_folder);
  const bool elsewhere = std::getenv("ELSEWHERE") != nullptr;
  const bool healed = std::getenv("HEALED") != nullptr;  // the reason why handlers failed is over
  const auto url = std::make_shared<std::string>();
  // The handler owns all that it uses. If it does not return in time, it is left behind.
  const auto handler = [sql, url, work, journal, publish_to, publish_in, elsewhere, healed](const Message& message,
                                                                                            Context& context) {
    const Noted noted(journal.get(), message, context);
    if (!healed) misbehave(message, context);
    if (work > 0ms) std::this_thread::sleep_for(work);
    const std::string id(message.header("message-id").value_or("none"));
    const auto key = message.key() ? std::optional(std::string(*message.key())) : std::nullopt;
    if (elsewhere) {
      run_elsewhere(*url, sql,
                    {id, std::to_string(context.attempt()), std::to_string(::getpid()),
                     std::to_string(message.partition()), std::to_string(message.offset()), key});
    } else if (message.text() == "defer") {
      context.defer(sql, id, context.attempt(), ::getpid(), message.partition(), message.offset(), key);
    } else {
      context.tx().exec(sql, id, context.attempt(), ::getpid(), message.partition(), message.offset(), key);
    }
    if (publish_to == nullptr) return;
    OwnedMessage made;
    made.topic = publish_to;
    if (publish_in.count() > 0)
      made.not_before = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now()) + publish_in;
    made.key = key;
    made.payload = id;
    context.publish(made);
    context.reply("re " + id);
  };
  try {
    const Config config = Config::load(argv[1]);
    if (config.postgres) *url = config.postgres->url.reveal();
    Backends backends = connect(config);
    if (journal) backends.store = std::make_shared<test::JournalledStore>(backends.store, *journal);
    Consumer app{config, backends};
    Pipeline pipeline = handler | transactional() | retry(exponential{20ms, 3, 200ms}) | dead_letter();
    if (std::getenv("BREAK_ON") != nullptr) pipeline = std::move(pipeline) | break_on();
    app.topic(argv[2], std::move(pipeline));
    if (const char* const file = std::getenv("HANG")) app.observe(std::make_shared<HangingObserver>(file));
    app.run();
  } catch (const std::exception& e) {
    std::cerr << "consumer: " << e.what() << '\n';
    return 1;
  }
  return 0;
}
