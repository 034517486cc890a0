#include "tests/support/world.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <pqxx/pqxx>
#include <sstream>

#include "tests/support/eventually.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/broker.hpp"

namespace turnstile::test {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

/// In the schema that the search path names.
constexpr const char* kLocksOfOthers =
    "SELECT count(*) FROM pg_locks JOIN pg_class ON pg_class.oid = relation "
    "WHERE relnamespace = current_schema()::regnamespace AND pid <> pg_backend_pid() "
    "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";

std::string unique_topic() {
  static std::atomic<int> count{0};
  return "t" + std::to_string(::getpid()) + "_" + std::to_string(++count) + "_" +
         std::to_string(std::chrono::steady_clock::now().time_since_epoch().count() % 1'000'000);
}

}  // namespace

std::string kafka_servers() { return environment("TURNSTILE_TEST_KAFKA"); }

World::World(WorldOptions options) : topic_(unique_topic()), schema_(topic_), options_(std::move(options)) {
  folder_ = (std::filesystem::temp_directory_path() / ("turnstile-" + topic_)).string();
  std::filesystem::create_directories(folder_);
  if (options_.postgres_url.empty()) {
    options_.postgres_url = postgres_url().value_or("");
    make_schema(schema_);
  } else {
    migrate(options_.postgres_url, schema_);
  }
  // No unique constraint: a second effect must be visible, not refused.
  static_cast<void>(query(
      "CREATE TABLE effect (id text, attempt int, pid int, record_partition int, record_offset bigint, record_key text, "
      "seq bigint GENERATED ALWAYS AS IDENTITY, at timestamptz DEFAULT clock_timestamp())"));
  const kafka::Settings kafka{{"bootstrap.servers", kafka_servers()}};
  kafka::create_topic(kafka, {topic_, options_.partitions, -1, {}}, kServerPatience);
  kafka::create_topic(kafka, {dead_topic(), 1, -1, options_.dead_topic_settings}, kServerPatience);
  broker_ = kafka::open_broker({{"bootstrap.servers", kafka_servers()}, {"group.id", topic_}}, nullptr);
  producer_ = broker_->open_producer();
}

World::~World() {
  try {
    EXPECT_TRUE(eventually([this] { return query(kLocksOfOthers) == "0"; })) << "a transaction was left open";
  } catch (const std::exception& error) {
    ADD_FAILURE() << error.what();
  }
  if (!::testing::Test::HasFailure()) std::filesystem::remove_all(folder_);
}

std::string World::toml(const std::string& topic_settings, const std::string& more) const {
  std::ostringstream text;
  text << "[kafka]\n\"bootstrap.servers\" = \"" << kafka_servers() << "\"\n\"group.id\" = \"" << topic_ << "\"\n"
       << "\"session.timeout.ms\" = \"" << options_.session_timeout_ms
       << "\"\n\"heartbeat.interval.ms\" = \"500\"\n\"auto.offset.reset\" = \"earliest\"\n"
       << "[postgres]\nurl = \"" << options_.postgres_url << "\"\nschema = \"" << schema_ << "\"\n"
       << more << "\n[topics.\"" << topic_ << "\"]\nhandler_timeout = \"" << options_.handler_timeout << "\"\n"
       << topic_settings << "\n";
  return text.str();
}

Config World::config(const std::string& topic_settings, const std::string& more) const {
  return Config::parse(toml(topic_settings, more), "test.toml");
}

std::int64_t World::publish(std::int64_t n, const std::string& prefix) {
  std::vector<std::future<void>> sent;
  std::atomic<std::int64_t> records{0};
  // Each send waits for its acknowledgement, so several threads keep the broker busy.
  constexpr std::int64_t kThreads = 32;
  for (std::int64_t thread = 0; thread < kThreads; ++thread) {
    sent.push_back(std::async(std::launch::async, [&, thread] {
      for (std::int64_t i = thread; i < n; i += kThreads) {
        OwnedMessage message;
        message.topic = topic_;
        message.partition = -1;
        message.key = std::to_string(i % 100);
        message.payload = "payload " + std::to_string(i);
        message.headers = {{"message-id", prefix + std::to_string(i)}};
        for (int copies = i % 10 == 0 ? 2 : 1; copies > 0; --copies) {
          producer_->send(message);
          ++records;
        }
      }
    }));
  }
  for (auto& done : sent) done.get();
  return records;
}

void World::publish(const std::string& id, const std::string& payload, const std::string& key) {
  OwnedMessage message;
  message.topic = topic_;
  message.partition = -1;
  if (!key.empty()) message.key = key;
  message.payload = payload;
  message.headers = {{"message-id", id}};
  producer_->send(message);
}

void World::publish(const std::vector<Header>& headers, const std::optional<std::string>& payload) {
  OwnedMessage message;
  message.topic = topic_;
  message.payload = payload;
  message.headers = headers;
  producer_->send(message);
}

ports::BrokerProducer::Sent World::publish(const OwnedMessage& message) { return producer_->send(message); }

std::string World::add_topic(const std::string& suffix, int partitions) {
  const std::string name = topic_ + "." + suffix;
  kafka::create_topic({{"bootstrap.servers", kafka_servers()}}, {name, partitions, -1, {}}, kServerPatience);
  return name;
}

Process World::consumer(const std::string& toml, const std::map<std::string, std::string>& environment) {
  static std::atomic<int> count{0};
  const std::string file = folder_ + "/consumer" + std::to_string(++count) + ".toml";
  std::ofstream(file) << toml;
  return Process(std::string(TURNSTILE_BIN_DIR) + "/consumer", {file, topic_, schema_}, environment,
                 folder_ + "/output");
}

std::string World::output() const {
  std::ifstream file(folder_ + "/output");
  return {std::istreambuf_iterator<char>(file), {}};
}

Effects World::effects() const {
  return {std::stoll(query("SELECT count(*) FROM effect")), std::stoll(query("SELECT count(DISTINCT id) FROM effect"))};
}

std::int64_t World::out_of_order() const {
  return std::stoll(query(
      "SELECT count(*) FROM (SELECT record_offset, lag(record_offset) OVER (PARTITION BY record_partition, record_key "
      "ORDER BY seq) AS before FROM effect) pairs WHERE before >= record_offset"));
}

std::string World::query(const std::string& sql) const {
  pqxx::connection connection(options_.postgres_url);
  pqxx::work work(connection);
  work.exec("SET LOCAL search_path = " + schema_);
  const auto rows = work.exec(sql);
  work.commit();
  return rows.empty() || rows[0][0].is_null() ? std::string() : std::string(rows[0][0].c_str());
}

Offset World::committed(std::int32_t partition) const {
  const TopicPartition at{topic_, partition};
  return broker_->open_consumer()
      ->committed({&at, 1}, std::chrono::seconds(10))
      .front()
      .value_or(ports::GroupOffset{})
      .offset;
}

bool World::caught_up() const {
  const auto consumer = broker_->open_consumer();
  std::vector<TopicPartition> all;
  for (int p = 0; p < options_.partitions; ++p) all.push_back({topic_, p});
  const auto committed = consumer->committed(all, std::chrono::seconds(10));
  const auto bounds = consumer->bounds(all, std::chrono::seconds(10));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (!bounds[i] ||
        (bounds[i]->second > 0 && committed[i].value_or(ports::GroupOffset{}).offset != bounds[i]->second))
      return false;
  }
  return true;
}

void make_effect(const std::string& schema, const Message& message, Context& context) {
  const std::string sql =
      "INSERT INTO " + schema +
      ".effect (id, attempt, pid, record_partition, record_offset, record_key) VALUES ($1, $2, $3, $4, $5, $6)";
  const auto key = message.key() ? std::optional(std::string(*message.key())) : std::nullopt;
  const std::string id = context.idempotency_key() ? context.idempotency_key()->text() : "none";
  if (message.text() == "defer")
    context.defer(sql, id, context.attempt(), ::getpid(), message.partition(), message.offset(), key);
  else context.tx().exec(sql, id, context.attempt(), ::getpid(), message.partition(), message.offset(), key);
}

}  // namespace turnstile::test
