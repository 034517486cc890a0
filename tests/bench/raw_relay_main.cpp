// An outbox relay by hand: reads the framework's table in batches, produces them, waits for the reports of the batch,
// and deletes it.
//  --brokers B --topic T --postgres URL --schema S --messages M [--batch 5000]
// The producer is as safe as the relay's (idempotent, acks=all, no time limit). No other relay may run, so that no
// lease is needed. The clock runs from the first SELECT to the answer to the last DELETE.

#include <string>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"
#include "tests/bench/raw_postgres.hpp"

namespace {

using namespace bench;

rd_kafka_t* open_producer(const std::string& brokers) {
  rd_kafka_conf_t* conf = make_conf({{"bootstrap.servers", brokers},
                                     {"enable.idempotence", "true"},
                                     {"acks", "all"},
                                     {"linger.ms", "5"},
                                     {"batch.num.messages", "100000"},
                                     {"delivery.timeout.ms", "0"},
                                     {"partitioner", "murmur2_random"}});
  rd_kafka_conf_set_dr_msg_cb(conf, [](rd_kafka_t*, const rd_kafka_message_t* message, void*) {
    if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR) die(rd_kafka_err2str(message->err));
  });
  char why[512];
  rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
  if (rk == nullptr) die(why);
  return rk;
}

/// The payload stays in the batch, which outlives the reports.
void produce(rd_kafka_t* rk, const OutboxRow& row) {
  rd_kafka_headers_t* headers = rd_kafka_headers_new(1);
  rd_kafka_header_add(headers, "message-id", 10, row.message_id.data(), static_cast<ssize_t>(row.message_id.size()));
  const auto error = rd_kafka_producev(rk, RD_KAFKA_V_TOPIC(row.topic), RD_KAFKA_V_PARTITION(RD_KAFKA_PARTITION_UA),
                                       RD_KAFKA_V_KEY(row.key.data(), row.key.size()),
                                       RD_KAFKA_V_VALUE(const_cast<char*>(row.payload.data()), row.payload.size()),
                                       RD_KAFKA_V_MSGFLAGS(0), RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
  if (error != RD_KAFKA_RESP_ERR_NO_ERROR) die(rd_kafka_err2str(error));
}

/// Returns the number of records.
std::int64_t relay(Database& db, rd_kafka_t* rk) {
  const OutboxBatch batch = db.read_outbox();
  for (int i = 0; i < batch.size(); ++i) {
    produce(rk, batch.row(i));
    if (i % 100 == 0) rd_kafka_poll(rk, 0);
  }
  if (batch.size() == 0) return 0;
  // flush() also ends the linger time.
  if (rd_kafka_flush(rk, 60'000) != RD_KAFKA_RESP_ERR_NO_ERROR) die("no answer from the broker within 60 s");
  db.delete_outbox(batch);
  return batch.size();
}

}  // namespace

int main(int argc, char** argv) {
  Args args(argc, argv);
  const std::string brokers = args.text("brokers"), topic = args.text("topic");
  const std::int64_t wanted = args.number("messages"), most = args.number("batch", 5'000);
  Database db(args.text("postgres"));
  db.prepare_outbox(args.text("schema"), most);
  args.done();

  rd_kafka_t* rk = open_producer(brokers);
  const std::int64_t start_ns = now_ns();
  std::int64_t sent = 0;
  while (sent < wanted) sent += relay(db, rk);
  const double seconds = seconds_since(start_ns);
  rd_kafka_destroy(rk);
  Report("raw_relay")
      .add("batch", most)
      .add("messages", sent)
      .add("arrived", messages_in(brokers, topic))
      .add("seconds", seconds)
      .add("rate", static_cast<double>(sent) / seconds)
      .add("cpu_seconds", cpu_seconds())
      .print();
  return 0;
}
