// Once, by hand: reads a topic and gives each message id a row in raw_inbox and a row in raw_effects, in one
// transaction.
//   --brokers B --topic T --postgres URL --connections N [--batch 500]
//   --way single|sync|pipeline|set|user-pipeline|user-set|lease|leases
//   [--messages M]
//   single    a transaction for each message: BEGIN, inbox row, business row, COMMIT, one after another
//   sync      batches; one set-based inbox insert, then a synchronous business insert for each message
//   pipeline  batches; the business inserts are sent together through libpq's pipeline
//   set       batches; one set-based business insert
//   user-pipeline, user-set   as pipeline and set, but the business row has the message's id (a uuid) in place of a number
//   lease     one message at a time, in two commits: claimed in raw_lease, then done (the effect is elsewhere, or none)
//   leases    the same for batches: one statement claims a batch, and one ends its claims
// Each connection is a thread that owns some of the partitions. The clock runs from the first message to the last
// COMMIT. Offsets are stored after each transaction and committed once a second.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <thread>
#include <vector>

#include "tests/bench/bench_common.hpp"
#include "tests/bench/raw_kafka.hpp"
#include "tests/bench/raw_postgres.hpp"

namespace {

using namespace bench;

enum class Way { single, sync, pipeline, set, user_pipeline, user_set, lease, leases };

Way way_of(const std::string& name) {
  if (name == "single") return Way::single;
  if (name == "sync") return Way::sync;
  if (name == "pipeline") return Way::pipeline;
  if (name == "set") return Way::set;
  if (name == "user-pipeline") return Way::user_pipeline;
  if (name == "user-set") return Way::user_set;
  if (name == "lease") return Way::lease;
  if (name == "leases") return Way::leases;
  die("--way: single, sync, pipeline, set, user-pipeline, user-set, lease or leases, not " + name);
}

bool one_at_a_time(Way way) { return way == Way::single || way == Way::lease; }

struct Shared {
  std::atomic<std::int64_t> settled{0};
  std::atomic<std::int64_t> refused{0};
  std::atomic<std::int64_t> first_ns{0};
  std::atomic<std::int64_t> last_ns{0};
  std::int64_t wanted = 0;

  void started() {
    std::int64_t none = 0;
    if (first_ns.load(std::memory_order_relaxed) == 0) first_ns.compare_exchange_strong(none, now_ns());
  }
  [[nodiscard]] bool finished() const { return settled.load() >= wanted; }
};

/// A message of a batch, as the transaction needs it.
struct Item {
  Uuid id;
  std::int64_t payment;
  std::int64_t amount;
};

class Worker {
 public:
  Worker(const std::string& url, Way way) : db_(url), way_(way) {
    db_.prepare_statements();
    if (way_ != Way::sync && way_ != Way::leases && !one_at_a_time(way_)) db_.enter_pipeline();
  }

  /// Returns the number of duplicates.
  std::int64_t take(std::span<rd_kafka_message_t* const> messages) {
    if (way_ == Way::single) return take_single(*messages.front());
    if (way_ == Way::lease) return take_leased(*messages.front());
    read(messages);
    if (way_ == Way::leases) return take_batch_of_leases(static_cast<std::int64_t>(messages.size()));
    insert_ids();
    select_fresh();
    insert_effects();
    return static_cast<std::int64_t>(messages.size() - fresh_items_.size());
  }

 private:
  static std::string_view payload(const rd_kafka_message_t& m) { return {static_cast<const char*>(m.payload), m.len}; }

  std::int64_t take_single(const rd_kafka_message_t& message) {
    const Record record = Record::read(payload(message));
    db_.exec("BEGIN");
    const bool fresh = db_.insert_id(std::string(header(message, "message-id")));
    if (fresh) db_.insert_effect(record.number, record.amount);
    db_.exec("COMMIT");
    return fresh ? 0 : 1;
  }

  std::int64_t take_leased(const rd_kafka_message_t& message) {
    const std::string id(header(message, "message-id"));
    std::optional<std::int64_t> fence;
    while (!(fence = db_.claim(id, owner_))) {
      if (db_.is_done(id)) return 1;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));  // another owner runs it
    }
    if (!db_.complete(id, owner_, *fence)) die("the claim of " + id + " was lost");
    return 0;
  }

  /// An id that another owner has claimed is not expected here: each message of a run is delivered once.
  std::int64_t take_batch_of_leases(std::int64_t messages) {
    const std::vector<Uuid> claimed = db_.claim_many(ids_, owner_);
    if (db_.complete_many(claimed, owner_) != static_cast<std::int64_t>(claimed.size())) die("a claim was lost");
    return messages - static_cast<std::int64_t>(claimed.size());
  }

  void read(std::span<rd_kafka_message_t* const> messages) {
    items_.clear();
    ids_.clear();
    for (const rd_kafka_message_t* message : messages) {
      const Record record = Record::read(payload(*message));
      items_.push_back({parse_uuid(header(*message, "message-id")), record.number, record.amount});
      ids_.push_back(items_.back().id);
    }
    std::sort(ids_.begin(), ids_.end());
    ids_.erase(std::unique(ids_.begin(), ids_.end()), ids_.end());
  }

  void insert_ids() {
    if (way_ == Way::sync) {
      db_.exec("BEGIN");
      fresh_ = db_.insert_ids(ids_);
    } else {
      db_.send("BEGIN");
      db_.send_ids(ids_);
      fresh_ = db_.sync();
    }
    std::sort(fresh_.begin(), fresh_.end());
  }

  /// Keeps the first message of each new id, in the batch's order.
  void select_fresh() {
    std::vector<char> used(fresh_.size(), 0);
    fresh_items_.clear();
    for (const Item& item : items_) {
      const auto at = std::lower_bound(fresh_.begin(), fresh_.end(), item.id);
      if (at == fresh_.end() || *at != item.id) continue;
      char& seen = used[static_cast<std::size_t>(at - fresh_.begin())];
      if (seen != 0) continue;
      seen = 1;
      fresh_items_.push_back(item);
    }
  }

  void insert_effects() {
    if (way_ == Way::sync) {
      for (const Item& item : fresh_items_) db_.insert_effect(item.payment, item.amount);
      db_.exec("COMMIT");
      return;
    }
    if (way_ == Way::pipeline) {
      for (const Item& item : fresh_items_) db_.send_effect(item.payment, item.amount);
    } else if (way_ == Way::user_pipeline) {
      for (const Item& item : fresh_items_) db_.send_user_effect(item.id, item.amount);
    } else {
      payments_.clear();
      effect_ids_.clear();
      amounts_.clear();
      for (const Item& item : fresh_items_) {
        if (way_ == Way::set) payments_.push_back(item.payment);
        else effect_ids_.push_back(item.id);
        amounts_.push_back(item.amount);
      }
      if (way_ == Way::set) db_.send_effects(payments_, amounts_);
      else db_.send_user_effects(effect_ids_, amounts_);
    }
    db_.send("COMMIT");
    db_.sync();
  }

  Database db_;
  Way way_;
  const std::string owner_ = unique_name("worker");
  std::vector<Item> items_, fresh_items_;
  std::vector<Uuid> ids_, fresh_, effect_ids_;
  std::vector<std::int64_t> payments_, amounts_;
};

struct Mine {
  int partition;
  std::int64_t next;
  std::int64_t end;
};

void work(Worker& worker, const PartitionReader& reader, std::vector<Mine> mine, std::size_t batch, Shared& shared) {
  std::vector<rd_kafka_message_t*> messages(batch);
  while (!shared.finished()) {
    bool idle = true;
    for (Mine& part : mine) {
      if (part.next >= part.end) continue;
      idle = false;
      const ssize_t got = rd_kafka_consume_batch_queue(reader.queue(part.partition), 10, messages.data(), batch);
      if (got <= 0) continue;
      shared.started();
      const std::span<rd_kafka_message_t* const> taken(messages.data(), static_cast<std::size_t>(got));
      for (const rd_kafka_message_t* m : taken) {
        if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR) die(rd_kafka_message_errstr(m));
      }
      shared.refused += worker.take(taken);
      part.next = taken.back()->offset + 1;
      reader.store(part.partition, part.next);
      for (rd_kafka_message_t* m : taken) rd_kafka_message_destroy(m);
      if ((shared.settled += got) >= shared.wanted) shared.last_ns = now_ns();
    }
    if (idle) return;
  }
}

/// Compares the tables with the expected result for the topic.
void verify(const std::string& url, Way way, const Shared& shared) {
  Database db(url);
  if (way == Way::lease || way == Way::leases) {
    const std::int64_t done =
        db.number("SELECT count(*) FILTER (WHERE done) - count(*) FILTER (WHERE NOT done) FROM raw_lease");
    if (done != shared.settled - shared.refused) die(std::to_string(done) + " done, less those that are not");
    return;
  }
  const std::string table = way == Way::user_pipeline || way == Way::user_set ? "raw_user_effects" : "raw_effects";
  const std::int64_t effects = db.number(("SELECT count(*) FROM " + table).c_str());
  const std::int64_t distinct = db.number(("SELECT count(DISTINCT payment) FROM " + table).c_str());
  if (effects != distinct || effects != shared.settled - shared.refused) {
    die(std::to_string(effects) + " effects, " + std::to_string(distinct) + " distinct, of " +
        std::to_string(shared.settled - shared.refused));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Args args(argc, argv);
  const std::string url = args.text("postgres");
  const std::string way_name = args.text("way");
  const auto connections = static_cast<int>(args.number("connections", 4));
  const Way way = way_of(way_name);
  const auto batch = one_at_a_time(way) ? std::size_t{1} : static_cast<std::size_t>(args.number("batch", 500));
  PartitionReader reader(args.text("brokers"), args.text("topic"), unique_name("raw-once"),
                         parse_settings(args.text("kafka", "")));
  Shared shared;
  shared.wanted = std::min(reader.messages(), args.number("messages", reader.messages()));
  args.done();

  make_raw_tables(url);
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < connections; ++i) workers.push_back(std::make_unique<Worker>(url, way));
  reader.wait_for_partitions();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < connections; ++i) {
      std::vector<Mine> mine;
      for (int p = i; p < reader.partitions(); p += connections)
        mine.push_back({p, reader.span(p).low, reader.span(p).high});
      threads.emplace_back([&, i, mine] { work(*workers[static_cast<std::size_t>(i)], reader, mine, batch, shared); });
    }
    while (!shared.finished()) reader.poll(20);
  }
  reader.commit();
  verify(url, way, shared);
  const double seconds = static_cast<double>(shared.last_ns - shared.first_ns) / 1e9;
  Report("raw_once")
      .add("way", way_name)
      .add("connections", std::int64_t{connections})
      .add("messages", shared.settled.load())
      .add("duplicates", shared.refused.load())
      .add("seconds", seconds)
      .add("rate", static_cast<double>(shared.settled) / seconds)
      .add("cpu_seconds", cpu_seconds())
      .print();
  return 0;
}
