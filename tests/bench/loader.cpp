// Creates a topic and fills it.
//  --brokers B --topic T --partitions P --messages N
//  [--payload 100]          bytes
//  [--ids none|v4|v7]       header `message-id`, a UUID as text: random, or ordered by time; default none
//  [--duplicates 0.1]       this share of the messages repeats the id, key and payload of an earlier one
//  [--across 0]             1: a repetition goes to another partition than the first copy
//  [--keys none|uniform|zipf] [--key-count 10000]   Zipf with s = 1
//  [--rate R]               messages in a second; 0: as fast as possible
//  [--first 0]              the number of the first record: other numbers give other ids, later by time
//  [--create 1]             0: the topic exists already
//  [--remove 0]             1: deletes the topic, and does nothing else
// A record's key, id and partition follow from its number, so a repetition is the same record again. Reports the
// distinct ids and, for Zipf keys, how many messages the most frequent key got.

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"

namespace {

using namespace bench;

std::string uuid_of(std::uint64_t number, bool by_time, std::uint64_t seed) {
  std::uint64_t high = scramble(number ^ seed);
  const std::uint64_t low = (scramble(high) & 0x3fffffffffffffffU) | 0x8000000000000000U;
  if (by_time) {
    // A millisecond for every 100 records, as with a busy producer.
    const std::uint64_t ms = 1'750'000'000'000U + number / 100;
    high = (ms << 16U) | 0x7000U | (high & 0xfffU);
  } else {
    high = (high & 0xffffffffffff0fffU) | 0x4000U;
  }
  char text[37];
  std::snprintf(text, sizeof text, "%08x-%04x-%04x-%04x-%012llx", static_cast<unsigned>(high >> 32U),
                static_cast<unsigned>((high >> 16U) & 0xffffU), static_cast<unsigned>(high & 0xffffU),
                static_cast<unsigned>(low >> 48U), static_cast<unsigned long long>(low & 0xffffffffffffU));
  return text;
}

class Keys {
 public:
  Keys(const std::string& kind, std::int64_t count)
      : kind_(kind), count_(count), used_(static_cast<std::size_t>(count)) {
    if (kind != "none" && kind != "uniform" && kind != "zipf") die("--keys: none, uniform or zipf, not " + kind);
    double sum = 0;
    for (std::int64_t rank = 1; kind == "zipf" && rank <= count; ++rank)
      cumulative_.push_back(sum += 1.0 / static_cast<double>(rank));
  }
  [[nodiscard]] bool any() const { return kind_ != "none"; }
  std::int64_t of(std::uint64_t number) {
    const std::uint64_t random = scramble(number + 0x5bd1e995U);
    std::int64_t key = static_cast<std::int64_t>(random % static_cast<std::uint64_t>(count_));
    if (kind_ == "zipf") {
      const double at = static_cast<double>(random >> 11U) / 9007199254740992.0 * cumulative_.back();
      key = std::upper_bound(cumulative_.begin(), cumulative_.end(), at) - cumulative_.begin();
      key = std::min(key, count_ - 1);
    }
    ++used_[static_cast<std::size_t>(key)];
    return key;
  }
  [[nodiscard]] std::int64_t hottest() const { return any() ? *std::max_element(used_.begin(), used_.end()) : 0; }

 private:
  std::string kind_;
  std::int64_t count_;
  std::vector<double> cumulative_;
  std::vector<std::int64_t> used_;
};

struct Plan {
  std::string topic;
  int partitions = 4;
  std::int64_t messages = 0;
  std::size_t payload = 100;
  std::string ids = "none";
  double duplicates = 0;
  bool across = false;
  double rate = 0;
  std::uint64_t first = 0;
};

/// Decides which record comes at place i: a new one, or a repeat of one of the last 20,000.
class Numbers {
 public:
  explicit Numbers(double duplicates) : duplicates_(duplicates) {}
  struct Next {
    std::uint64_t number;
    bool again;
  };
  Next next() {
    owed_ += duplicates_;
    if (owed_ >= 1 && fresh_ > 0) {
      owed_ -= 1;
      const std::uint64_t back = scramble(++again_) % std::min<std::uint64_t>(fresh_, 20'000);
      return {fresh_ - 1 - back, true};
    }
    return {fresh_++, false};
  }
  [[nodiscard]] std::int64_t distinct() const { return static_cast<std::int64_t>(fresh_); }

 private:
  double duplicates_;
  double owed_ = 0;
  std::uint64_t fresh_ = 0;
  std::uint64_t again_ = 0;
};

class Loader {
 public:
  Loader(rd_kafka_t* rk, Plan plan, Keys keys)
      : rk_(rk),
        plan_(std::move(plan)),
        keys_(std::move(keys)),
        numbers_(plan_.duplicates),
        payload_(plan_.payload, 'x') {}

  void run() {
    const std::int64_t start_ns = now_ns();
    for (std::int64_t i = 0; i < plan_.messages; ++i) {
      if (plan_.rate > 0) pace(start_ns + static_cast<std::int64_t>(static_cast<double>(i) / plan_.rate * 1e9));
      produce(numbers_.next());
      if (i % 1000 == 0) rd_kafka_poll(rk_, 0);
    }
    if (rd_kafka_flush(rk_, 120'000) != RD_KAFKA_RESP_ERR_NO_ERROR)
      die("not all messages were acknowledged within 120 s");
  }
  [[nodiscard]] std::int64_t distinct() const { return numbers_.distinct(); }
  [[nodiscard]] std::int64_t hottest() const { return keys_.hottest(); }

 private:
  static void pace(std::int64_t due_ns) {
    const std::int64_t left_ns = due_ns - now_ns();
    if (left_ns > 0) std::this_thread::sleep_for(std::chrono::nanoseconds(left_ns));
  }

  int partition_of(std::uint64_t spread, bool again) const {
    const std::uint64_t home = spread + (plan_.across && again ? 1 : 0);
    return static_cast<int>(home % static_cast<std::uint64_t>(plan_.partitions));
  }

  void produce(Numbers::Next next) {
    next.number += plan_.first;
    Record{static_cast<std::int64_t>(next.number), static_cast<std::int64_t>(scramble(next.number) % 100'000), now_ns()}
        .write(payload_);
    std::string key;
    std::uint64_t spread = next.number;
    if (keys_.any()) {
      const auto k = keys_.of(next.number);
      key = "key-" + std::to_string(k);
      spread = scramble(static_cast<std::uint64_t>(k));
    }
    rd_kafka_headers_t* headers = nullptr;
    if (plan_.ids != "none") {
      const std::string id = uuid_of(next.number, plan_.ids == "v7", 0xb5297a4d);
      headers = rd_kafka_headers_new(1);
      rd_kafka_header_add(headers, "message-id", -1, id.data(), static_cast<ssize_t>(id.size()));
    }
    send(partition_of(spread, next.again), key, headers);
  }

  void send(int partition, const std::string& key, rd_kafka_headers_t* headers) {
    for (;;) {
      rd_kafka_resp_err_t error;
      if (headers == nullptr) {
        error = rd_kafka_producev(rk_, RD_KAFKA_V_TOPIC(plan_.topic.c_str()), RD_KAFKA_V_PARTITION(partition),
                                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                  RD_KAFKA_V_VALUE(payload_.data(), payload_.size()),
                                  RD_KAFKA_V_KEY(key.empty() ? nullptr : key.data(), key.size()), RD_KAFKA_V_END);
      } else {
        error = rd_kafka_producev(rk_, RD_KAFKA_V_TOPIC(plan_.topic.c_str()), RD_KAFKA_V_PARTITION(partition),
                                  RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                                  RD_KAFKA_V_VALUE(payload_.data(), payload_.size()),
                                  RD_KAFKA_V_KEY(key.empty() ? nullptr : key.data(), key.size()),
                                  RD_KAFKA_V_HEADERS(headers), RD_KAFKA_V_END);
      }
      if (error == RD_KAFKA_RESP_ERR_NO_ERROR) return;  // librdkafka owns the headers now
      if (error != RD_KAFKA_RESP_ERR__QUEUE_FULL) die(rd_kafka_err2str(error));
      rd_kafka_poll(rk_, 10);
    }
  }

  rd_kafka_t* rk_;
  Plan plan_;
  Keys keys_;
  Numbers numbers_;
  std::string payload_;
};

void on_delivery(rd_kafka_t*, const rd_kafka_message_t* message, void*) {
  if (message->err != RD_KAFKA_RESP_ERR_NO_ERROR)
    die(std::string("a message was not taken: ") + rd_kafka_err2str(message->err));
}

}  // namespace

int main(int argc, char** argv) {
  Args args(argc, argv);
  Plan plan;
  plan.topic = args.text("topic");
  plan.partitions = static_cast<int>(args.number("partitions", 4));
  plan.messages = args.number("messages");
  plan.payload = static_cast<std::size_t>(std::max<std::int64_t>(args.number("payload", 100), Record::kLeastBytes));
  plan.ids = args.text("ids", "none");
  plan.duplicates = args.real("duplicates", 0);
  plan.across = args.number("across", 0) != 0;
  plan.rate = args.real("rate", 0);
  plan.first = static_cast<std::uint64_t>(args.number("first", 0));
  Keys keys(args.text("keys", "none"), args.number("key-count", 10'000));
  const bool create = args.number("create", 1) != 0;
  const bool remove = args.number("remove", 0) != 0;
  if (plan.ids != "none" && plan.ids != "v4" && plan.ids != "v7") die("--ids: none, v4 or v7, not " + plan.ids);

  const bool paced = plan.rate > 0;
  rd_kafka_conf_t* conf =
      make_conf({{"bootstrap.servers", args.text("brokers")},
                 {"acks", "all"},
                 {"linger.ms", paced ? "0" : "20"},
                 {"batch.size", "900000"},
                 {"message.max.bytes", std::to_string(std::max<std::size_t>(1'000'000, plan.payload + 10'000))},
                 {"batch.num.messages", "100000"},
                 {"queue.buffering.max.messages", "1000000"},
                 {"queue.buffering.max.kbytes", "262144"}});
  args.done();
  rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
  char why[512];
  rd_kafka_t* rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, why, sizeof why);
  if (rk == nullptr) die(why);
  if (remove) remove_topic(rk, plan.topic);
  else if (create) create_topic(rk, plan.topic, plan.partitions);

  const std::int64_t start_ns = now_ns();
  Loader loader(rk, plan, std::move(keys));
  loader.run();
  const double seconds = seconds_since(start_ns);
  rd_kafka_destroy(rk);
  Report("loader")
      .add("topic", plan.topic)
      .add("messages", plan.messages)
      .add("distinct", loader.distinct())
      .add("hottest_key", loader.hottest())
      .add("seconds", seconds)
      .add("rate", static_cast<double>(plan.messages) / seconds)
      .print();
  return 0;
}
