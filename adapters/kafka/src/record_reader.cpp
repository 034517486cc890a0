#include "turnstile/kafka/record_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <utility>

#include "client.hpp"
#include "error_code.hpp"
#include "fetcher_wakeup.hpp"
#include "partition_list.hpp"
#include "records.hpp"
#include "topics.hpp"

namespace turnstile::kafka {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kAskAgain{100};
constexpr std::size_t kMostTaken = 2'000;

Settings reader_settings(Settings settings) {
  settings.try_emplace("isolation.level", "read_committed");
  // Deleted records are passed over, and the reader's user compares what it got with where the partition begins.
  settings["auto.offset.reset"] = "earliest";
  settings["enable.partition.eof"] = "true";
  settings["allow.auto.create.topics"] = "false";
  settings["check.crcs"] = "true";
  return settings;
}

}  // namespace

struct RecordReader::Impl {
  Impl(const Settings& from, std::string of, std::shared_ptr<spdlog::logger> logger, milliseconds most)
      : topic(std::move(of)),
        patience(most),
        settings(reader_settings(from)),
        client(Client::open(Role::consumer, settings, std::move(logger))),
        partitions(partition_count(*client, topic, patience).value_or(0)) {
    if (partitions == 0)
      throw BrokerError(Code::topic_missing, fmt::format("there is no topic {} at {}", topic, client->where().broker));
  }

  /// The offset for `what` in each partition: a timestamp, RD_KAFKA_OFFSET_BEGINNING or RD_KAFKA_OFFSET_END. Past the
  /// last timestamp it is RD_KAFKA_OFFSET_END.
  std::vector<Offset> ask(std::int64_t what) const {
    const auto until = Clock::now() + patience;
    for (;;) {
      const PartitionList list{rd_kafka_topic_partition_list_new(partitions)};
      for (std::int32_t p = 0; p < partitions; ++p)
        rd_kafka_topic_partition_list_add(list.get(), topic.c_str(), p)->offset = what;
      const auto left = std::chrono::ceil<milliseconds>(until - Clock::now());
      auto code = rd_kafka_offsets_for_times(client->handle(), list.get(), ms(left));
      std::vector<Offset> offsets(static_cast<std::size_t>(partitions), RD_KAFKA_OFFSET_END);
      for (const auto& element : elements(list.get())) {
        if (!code) code = element.err;
        offsets.at(static_cast<std::size_t>(element.partition)) = element.offset;
      }
      if (!code) return offsets;
      if (for_good(code) || Clock::now() + kAskAgain >= until) {
        client->hear_failures();
        throw client->no_answer(code, "requesting its offsets", topic);
      }
      std::this_thread::sleep_for(kAskAgain);
    }
  }

  const std::string topic;
  const milliseconds patience;
  const Settings settings;
  const std::shared_ptr<Client> client;
  const std::int32_t partitions;
  const FetcherWakeup wakeup{settings};
};

RecordReader::RecordReader(const Settings& settings, std::string topic, std::shared_ptr<spdlog::logger> logger,
                           milliseconds patience)
    : impl_(std::make_unique<Impl>(settings, std::move(topic), std::move(logger), patience)) {}

RecordReader::~RecordReader() = default;

std::int32_t RecordReader::partitions() const noexcept { return impl_->partitions; }

bool RecordReader::is_compacted() const {
  const auto policy = topic_setting(*impl_->client, impl_->topic, "cleanup.policy", impl_->patience);
  return policy && policy->find("compact") != std::string::npos;
}

std::vector<OffsetRange> RecordReader::ranges(std::optional<Timestamp> from, std::optional<Timestamp> to) {
  const auto low = impl_->ask(RD_KAFKA_OFFSET_BEGINNING), high = impl_->ask(RD_KAFKA_OFFSET_END);
  const auto at = [&](std::optional<Timestamp> time, const std::vector<Offset>& otherwise) {
    if (!time) return otherwise;
    // librdkafka takes negative numbers as other questions.
    auto offsets = impl_->ask(std::max<std::int64_t>(time->time_since_epoch().count(), 0));
    for (std::size_t p = 0; p < offsets.size(); ++p) {
      if (offsets[p] < 0) offsets[p] = high[p];
    }
    return offsets;
  };
  const auto begin = at(from, low), end = at(to, high);
  std::vector<OffsetRange> ranges;
  for (std::int32_t p = 0; p < impl_->partitions; ++p) {
    const auto i = static_cast<std::size_t>(p);
    const Offset first = std::max(begin[i], low[i]);
    ranges.push_back({p, first, std::max(first, std::min(end[i], high[i])), low[i]});
  }
  return ranges;
}

void RecordReader::read(const OffsetRange& range, const std::function<bool(std::span<const Message>)>& on_records) {
  if (range.begin >= range.end) return;
  auto* handle = impl_->client->handle();
  const Queue queue{rd_kafka_queue_new(handle)};
  const Topic topic{rd_kafka_topic_new(handle, impl_->topic.c_str(), nullptr)};
  if (!topic || rd_kafka_consume_start_queue(topic.get(), range.partition, range.begin, queue.get()) != 0)
    throw broker_error(rd_kafka_last_error(), "reading", impl_->client->where(impl_->topic));
  const auto stop = [&](const void*) { rd_kafka_consume_stop(topic.get(), range.partition); };
  const std::unique_ptr<const void, decltype(stop)> stopping{topic.get(), stop};
  std::array<rd_kafka_message_t*, kMostTaken> scratch{};
  auto until = Clock::now() + impl_->patience;
  std::size_t bytes_since_wakeup = 0;
  for (bool more = true; more;) {
    const std::size_t waited = rd_kafka_queue_length(queue.get());
    const auto got = rd_kafka_consume_batch_queue(queue.get(), 100, scratch.data(), scratch.size());
    impl_->client->hear_failures();
    std::vector<rd_kafka_message_t*> records;
    for (std::ptrdiff_t i = 0; i < got; ++i) {
      auto* const record = scratch[static_cast<std::size_t>(i)];
      const bool is_end = record->err == RD_KAFKA_RESP_ERR__PARTITION_EOF;
      if (record->offset >= range.end || (!record->err && record->offset + 1 == range.end) || is_end) more = false;
      if (!record->err && record->offset < range.end) {
        records.push_back(record);
        continue;
      }
      const RecordPtr owned{record};
      if (record->err && !is_end && for_good(record->err)) {
        for (std::ptrdiff_t rest = i + 1; rest < got; ++rest) RecordPtr{scratch[static_cast<std::size_t>(rest)]};
        for (auto* taken : records) RecordPtr{taken};
        throw broker_error(record->err, "reading", impl_->client->where(impl_->topic));
      }
    }
    if (impl_->wakeup.due(waited, records, bytes_since_wakeup))
      FetcherWakeup::wake(handle, impl_->topic.c_str(), range.partition);
    if (!records.empty()) {
      until = Clock::now() + impl_->patience;
      const RecordBlock block{impl_->client, records};
      if (!on_records(block.messages())) return;
    } else if (more && Clock::now() >= until) {
      throw impl_->client->no_answer(RD_KAFKA_RESP_ERR__TIMED_OUT, "reading its records", impl_->topic);
    }
  }
}

}  // namespace turnstile::kafka
