#include "turnstile/otlp/tracer.hpp"

#include <spdlog/logger.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <thread>
#include <utility>

#include "encode.hpp"
#include "http_sender.hpp"
#include "quiet_thread.hpp"
#include "span_queue.hpp"
#include "turnstile/log.hpp"
#include "turnstile/text.hpp"
#include "turnstile/tokens.hpp"

namespace turnstile::otlp {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using Batch = std::vector<QueuedSpan>;

/// What to do after an answer.
struct Judgement {
  enum class Then { accepted, retry, drop } then = Then::drop;
  std::int64_t rejected = 0;  ///< of the spans of an accepted request
  std::string why{};          ///< it is not accepted, or spans were rejected
};

/// The statuses with which the protocol asks for another attempt.
bool is_temporary(int status) { return status == 429 || status == 502 || status == 503 || status == 504; }

std::string status_text(const HttpSender::Answer& answer) {
  const std::string reason = decode_error(answer.body, answer.type);
  std::string text = "it answered with status " + std::to_string(answer.status);
  if (!reason.empty()) text += ": " + reason;
  if (answer.status == 401 || answer.status == 403) text += "; check [tracing] headers";
  if (answer.status == 404 || answer.status == 405) text += "; check [tracing] endpoint";
  return text;
}

Judgement judge_accepted(const HttpSender::Answer& answer) {
  if (!answer.is_whole) return {Judgement::Then::drop, 0, answer.why};
  // Some collectors answer in JSON, and such an answer is not read. Anything else is a page of some other server.
  if (answer.type.starts_with("application/json")) return {Judgement::Then::accepted};
  const bool is_ours = answer.body.empty() || answer.type.starts_with("application/x-protobuf");
  const auto partial = is_ours ? decode_answer(answer.body) : std::nullopt;
  if (!partial) {
    return {Judgement::Then::drop, 0,
            "it answered with status " + std::to_string(answer.status) +
                ", but not as a collector does; check [tracing] endpoint"};
  }
  return {Judgement::Then::accepted, std::max<std::int64_t>(partial->rejected, 0), text::printable(partial->message)};
}

Judgement judge(const HttpSender::Answer& answer) {
  if (answer.status == 0) return {Judgement::Then::retry, 0, answer.why};
  if (answer.status >= 200 && answer.status < 300) return judge_accepted(answer);
  return {is_temporary(answer.status) ? Judgement::Then::retry : Judgement::Then::drop, 0, status_text(answer)};
}

std::uint64_t random_bits() {
  thread_local std::mt19937_64 random{[] {
    std::random_device device;
    std::seed_seq seed{device(), device(), device(), device()};
    return std::mt19937_64{seed};
  }()};
  return random();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

}  // namespace

Resource resource_of(const Config& config) {
  return {.service = config.tracing.service_name.empty() ? config.client() : config.tracing.service_name,
          .instance = process_name(config.client(), host_name(), static_cast<std::uint32_t>(::getpid())),
          .group = config.group()};
}

struct OtlpTracer::Impl {
  Impl(const TracingSettings& settings, Resource of, std::shared_ptr<spdlog::logger> to, const Tuning& tuned)
      : sample(settings.sample),
        endpoint(settings.endpoint),
        resource(std::move(of)),
        logger(std::move(to)),
        tuning(tuned),
        queue(tuned),
        sender(settings) {}

  void run() {
    for (bool more = true; more;) {
      try {
        more = send_next();
      } catch (...) {  // no memory: an exporter must not end the process
        dropped += sending.exchange(0);
        queue.wait(steady_clock::now() + tuning.first_retry);
      }
    }
  }

  /// Returns false after the last spans.
  bool send_next() {
    const Batch batch = queue.take(not_before);
    if (batch.empty()) return false;
    sending = static_cast<std::int64_t>(batch.size());
    deliver(batch);
    sending = 0;
    report_overflow();
    return true;
  }

  void deliver(const Batch& batch) {
    const std::string body = encode(resource, batch);
    const auto give_up = steady_clock::now() + tuning.keep_trying;
    for (milliseconds pause = tuning.first_retry;; pause = std::min(2 * pause, tuning.longest_retry)) {
      const HttpSender::Answer answer = sender.post(body, tuning.request_timeout);
      const Judgement judgement = judge(answer);
      if (judgement.then == Judgement::Then::accepted) return accepted(batch, judgement);
      if (judgement.then == Judgement::Then::drop) return drop(batch, judgement.why);
      const auto next = steady_clock::now() + pause_after(answer, pause);
      not_before = answer.retry_after ? next : steady_clock::time_point{};
      report_failure("They wait, and are dropped if it does not accept them in time", judgement.why);
      // After the stop there is one attempt for each request.
      if (next > give_up || queue.wait(next)) return drop(batch, judgement.why);
    }
  }

  /// Half of the pause is by chance, so that many processes do not come back together.
  [[nodiscard]] milliseconds pause_after(const HttpSender::Answer& answer, milliseconds pause) const {
    const auto half = static_cast<std::uint64_t>(pause.count() / 2);
    const milliseconds jittered{pause.count() - static_cast<std::int64_t>(half == 0 ? 0 : random_bits() % half)};
    if (!answer.retry_after) return jittered;
    const auto longest = std::chrono::ceil<std::chrono::seconds>(tuning.longest_retry_after);
    return std::max<milliseconds>(jittered, std::min(*answer.retry_after, longest));
  }

  void accepted(const Batch& batch, const Judgement& judgement) {
    const auto all = static_cast<std::int64_t>(batch.size());
    const std::int64_t rejected = std::min(judgement.rejected, all);
    exported += all - rejected;
    dropped += rejected;
    not_before = {};
    if (rejected > 0) {
      return report(endpoint + " rejected " + std::to_string(rejected) + " of " + std::to_string(all) +
                    " spans: " + judgement.why);
    }
    if (!std::exchange(in_trouble, false)) return;
    logger->info("spans are sent to {} again; {} in all were dropped", endpoint, dropped.load());
  }

  void drop(const Batch& batch, const std::string& why) {
    dropped += static_cast<std::int64_t>(batch.size());
    report_failure("They are dropped", why);
  }

  void report_failure(const char* effect, const std::string& why) {
    report("spans cannot be sent to " + endpoint + ": " + why + ". " + effect);
  }

  void report_overflow() {
    if (const std::int64_t lost = overflow.exchange(0); lost > 0) {
      report("the queue of spans was full, and " + std::to_string(lost) + " were dropped: " + endpoint +
             " accepts them more slowly than they come. Lower [tracing] sample");
    }
  }

  /// One line for a trouble that lasts, and another each minute.
  void report(const std::string& text) {
    const auto now = steady_clock::now();
    if (in_trouble && now < reported_at + tuning.report_again) return;
    in_trouble = true;
    reported_at = now;
    log_warning(
        *logger, Code::spans_not_sent,
        text + "; " + std::to_string(dropped.load()) + " in all were dropped. Messages are processed as before");
  }

  const double sample;
  const std::string endpoint;
  const Resource resource;
  const std::shared_ptr<spdlog::logger> logger;
  const Tuning tuning;
  SpanQueue queue;
  HttpSender sender;
  std::atomic<std::int64_t> exported{0}, dropped{0}, sending{0};
  std::atomic<std::int64_t> overflow{0};  ///< of those dropped: not reported yet
  // Of the thread:
  steady_clock::time_point not_before{};  ///< as the collector asked for
  steady_clock::time_point reported_at{};
  bool in_trouble = false;
  std::thread thread;
};

OtlpTracer::OtlpTracer(const TracingSettings& settings, Resource resource, std::shared_ptr<spdlog::logger> logger,
                       const Tuning& tuning)
    : impl_(std::make_unique<Impl>(settings, std::move(resource), std::move(logger), tuning)) {
  impl_->thread = quiet_thread([impl = impl_.get()] { impl->run(); });
}

OtlpTracer::~OtlpTracer() {
  impl_->sender.end_all_at(steady_clock::now() + impl_->tuning.flush);
  impl_->queue.close();
  impl_->thread.join();
}

void OtlpTracer::on_span(const SpanReport& span) noexcept {
  try {
    if (impl_->queue.push(QueuedSpan(span))) return;
  } catch (...) {  // no memory
  }
  ++impl_->dropped;
  ++impl_->overflow;
}

bool OtlpTracer::begins_trace() noexcept {
  if (impl_->sample <= 0) return false;
  // 53 bits, so that the share is exact for a double.
  return impl_->sample >= 1 || std::ldexp(static_cast<double>(random_bits() >> 11U), -53) < impl_->sample;
}

std::optional<SpanCounts> OtlpTracer::counts() const noexcept {
  const std::int64_t sending = impl_->sending;
  return SpanCounts{impl_->exported, impl_->dropped, sending + static_cast<std::int64_t>(impl_->queue.size())};
}

}  // namespace turnstile::otlp
