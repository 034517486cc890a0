// Latency by hand: from the loader's production of a message to the answer to the COMMIT of its effect. Start it, wait
// for the line "ready", then start the loader with --rate.
//  --brokers B --topic T --postgres URL --messages N [--warmup W] [--mode single|batch]
//  single   the usual loop: consumer_poll, one transaction for each message
//  batch    takes all ready messages (at most 500), and runs one transaction for them

#include <algorithm>
#include <cstdio>
#include <span>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"
#include "tests/bench/raw_postgres.hpp"

namespace {

using namespace bench;

std::string_view payload(const rd_kafka_message_t& m) { return {static_cast<const char*>(m.payload), m.len}; }

/// A plain consumer with the main queue.
rd_kafka_t* subscribe(const std::string& brokers, const std::string& topic, const Settings& more) {
  Settings settings{{"bootstrap.servers", brokers},      {"group.id", unique_name("raw-latency")},
                    {"auto.offset.reset", "earliest"},   {"enable.auto.offset.store", "false"},
                    {"auto.commit.interval.ms", "1000"}, {"isolation.level", "read_committed"}};
  settings.insert(settings.end(), more.begin(), more.end());
  char why[512];
  rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_CONSUMER, make_conf(settings), why, sizeof why);
  if (rk == nullptr) die(why);
  rd_kafka_poll_set_consumer(rk);
  rd_kafka_topic_partition_list_t* topics = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(topics, topic.c_str(), RD_KAFKA_PARTITION_UA);
  if (const auto error = rd_kafka_subscribe(rk, topics); error != RD_KAFKA_RESP_ERR_NO_ERROR)
    die(rd_kafka_err2str(error));
  rd_kafka_topic_partition_list_destroy(topics);
  return rk;
}

void wait_for_assignment(rd_kafka_t* rk) {
  const std::int64_t start_ns = now_ns();
  for (int partitions = 0; partitions == 0;) {
    if (seconds_since(start_ns) > 30) die("the group gave no partitions within 30 s");
    if (rd_kafka_consumer_poll(rk, 20) != nullptr) die("a message before the loader was started");
    rd_kafka_topic_partition_list_t* list = nullptr;
    rd_kafka_assignment(rk, &list);
    partitions = list->cnt;
    rd_kafka_topic_partition_list_destroy(list);
  }
}

void take_single(Database& db, const rd_kafka_message_t& message) {
  const Record record = Record::read(payload(message));
  db.exec("BEGIN");
  if (db.insert_id(std::string(header(message, "message-id")))) db.insert_effect(record.number, record.amount);
  db.exec("COMMIT");
}

void take_batch(Database& db, std::span<rd_kafka_message_t* const> messages) {
  std::vector<std::pair<Uuid, Record>> items;
  for (const rd_kafka_message_t* m : messages)
    items.emplace_back(parse_uuid(header(*m, "message-id")), Record::read(payload(*m)));
  std::sort(items.begin(), items.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  items.erase(std::unique(items.begin(), items.end(), same), items.end());
  std::vector<Uuid> ids;
  for (const auto& item : items) ids.push_back(item.first);
  db.exec("BEGIN");
  std::vector<Uuid> fresh = db.insert_ids(ids);
  std::sort(fresh.begin(), fresh.end());
  std::vector<std::int64_t> payments, amounts;
  for (const auto& [id, record] : items) {
    if (!std::binary_search(fresh.begin(), fresh.end(), id)) continue;
    payments.push_back(record.number);
    amounts.push_back(record.amount);
  }
  db.insert_effects(payments, amounts);
  db.exec("COMMIT");
}

void store(rd_kafka_t* rk, const rd_kafka_message_t& message) {
  rd_kafka_topic_partition_list_t* list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, rd_kafka_topic_name(message.rkt), message.partition)->offset =
      message.offset + 1;
  rd_kafka_offsets_store(rk, list);
  rd_kafka_topic_partition_list_destroy(list);
}

}  // namespace

int main(int argc, char** argv) {
  Args args(argc, argv);
  const std::string url = args.text("postgres");
  const std::string mode = args.text("mode", "single");
  const std::int64_t wanted = args.number("messages");
  const std::int64_t warmup = args.number("warmup", 2'000);
  if (mode != "single" && mode != "batch") die("--mode: single or batch, not " + mode);
  make_raw_tables(url);
  Database db(url);
  db.prepare_statements();
  rd_kafka_t* rk = subscribe(args.text("brokers"), args.text("topic"), parse_settings(args.text("kafka", "")));
  args.done();
  wait_for_assignment(rk);
  std::puts("ready");
  std::fflush(stdout);

  const std::size_t most = mode == "single" ? 1 : 500;
  std::vector<double> latency_ms;
  std::vector<rd_kafka_message_t*> batch;
  for (std::int64_t seen = 0; seen < wanted;) {
    rd_kafka_message_t* message = rd_kafka_consumer_poll(rk, 1'000);
    for (; message != nullptr; message = batch.size() < most ? rd_kafka_consumer_poll(rk, 0) : nullptr) {
      if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) die(rd_kafka_message_errstr(message));
      batch.push_back(message);
    }
    if (batch.empty()) continue;
    if (most == 1) take_single(db, *batch.front());
    else take_batch(db, batch);
    const std::int64_t done_ns = now_ns();
    for (rd_kafka_message_t* m : batch) {
      if (++seen > warmup)
        latency_ms.push_back(static_cast<double>(done_ns - Record::read(payload(*m)).produced_ns) / 1e6);
      store(rk, *m);
      rd_kafka_message_destroy(m);
    }
    batch.clear();
  }
  rd_kafka_consumer_close(rk);
  rd_kafka_destroy(rk);
  Report("raw_latency")
      .add("mode", mode)
      .add("messages", static_cast<std::int64_t>(latency_ms.size()))
      .add("p50_ms", percentile(latency_ms, 0.50))
      .add("p99_ms", percentile(latency_ms, 0.99))
      .add("max_ms", percentile(latency_ms, 1.0))
      .add("cpu_seconds", cpu_seconds())
      .print();
  return 0;
}
