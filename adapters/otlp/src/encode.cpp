#include "encode.hpp"

#include <otlp.pb.h>

#include <algorithm>

#include "turnstile/text.hpp"

namespace turnstile::otlp {

namespace {

using Step = SpanReport::Step;

// SpanFlags of the protocol: bits 0 to 7 are those of the trace context.
constexpr std::uint32_t kHasIsRemote = 0x100, kIsRemote = 0x200;
constexpr std::size_t kLongestReason = 200;

wire::KeyValue* put(google::protobuf::RepeatedPtrField<wire::KeyValue>* to, const char* key, std::string_view text) {
  wire::KeyValue* const pair = to->Add();
  pair->set_key(key);
  pair->mutable_value()->set_string_value(text::printable(text));
  return pair;
}

void put(google::protobuf::RepeatedPtrField<wire::KeyValue>* to, const char* key, std::int64_t number) {
  wire::KeyValue* const pair = to->Add();
  pair->set_key(key);
  pair->mutable_value()->set_int_value(number);
}

template <std::size_t N>
std::string bytes(const std::array<std::uint8_t, N>& id) {
  return {id.begin(), id.end()};
}

/// Of a message, so it may be anything. W3C allows printable ASCII alone.
std::string state_of(const TraceContext& trace) {
  const bool is_text =
      std::all_of(trace.state.begin(), trace.state.end(), [](char c) { return (c >= ' ' && c <= '~') || c == '\t'; });
  return is_text ? trace.state : std::string();
}

/// The operation in the conventions for messaging; empty if they have none.
std::string_view operation_of(Step step) {
  switch (step) {
    case Step::receive: return "receive";
    case Step::handler:
    case Step::process: return "process";
    case Step::commit: return "settle";
    case Step::wait_for_permit:
    case Step::claim: break;
  }
  return {};
}

wire::Span::SpanKind kind_of(Step step) {
  const bool is_internal = step == Step::wait_for_permit || step == Step::claim;
  return is_internal ? wire::Span::SPAN_KIND_INTERNAL : wire::Span::SPAN_KIND_CONSUMER;
}

std::uint64_t nanoseconds(std::chrono::system_clock::time_point time) {
  return static_cast<std::uint64_t>(
      std::max<std::int64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count(), 0));
}

void write(const QueuedSpan& from, const std::string& group, wire::Span& to) {
  to.set_trace_id(bytes(from.context.trace_id));
  to.set_span_id(bytes(from.context.span_id));
  to.set_trace_state(state_of(from.context));
  const bool has_parent = from.parent != std::array<std::uint8_t, 8>{};
  if (has_parent) to.set_parent_span_id(bytes(from.parent));
  to.set_flags(from.context.flags | kHasIsRemote | (has_parent && from.is_parent_remote ? kIsRemote : 0));
  to.set_name(text::printable(std::string(to_text(from.step)) + " " + from.topic));
  to.set_kind(kind_of(from.step));
  const std::uint64_t start = nanoseconds(from.start);
  to.set_start_time_unix_nano(start);
  to.set_end_time_unix_nano(start + static_cast<std::uint64_t>(std::max<std::int64_t>(from.took.count(), 0)));

  auto* const attributes = to.mutable_attributes();
  put(attributes, "messaging.system", "kafka");
  put(attributes, "messaging.destination.name", from.topic);
  put(attributes, "messaging.destination.partition.id", std::to_string(from.partition));
  put(attributes, "messaging.consumer.group.name", group);
  put(attributes, "messaging.kafka.offset", from.offset);
  if (from.messages > 1) put(attributes, "messaging.batch.message_count", from.messages);
  if (const auto operation = operation_of(from.step); !operation.empty())
    put(attributes, "messaging.operation.type", operation);
  put(attributes, "messaging.operation.name", to_text(from.step));
  put(attributes, "turnstile.handler", from.handler);

  for (const TraceContext& link : from.links) {
    wire::Span::Link& one = *to.add_links();
    one.set_trace_id(bytes(link.trace_id));
    one.set_span_id(bytes(link.span_id));
    one.set_trace_state(state_of(link));
    one.set_flags(link.flags);
  }
  if (from.error.empty()) return;
  to.mutable_status()->set_code(wire::Status::STATUS_CODE_ERROR);
  to.mutable_status()->set_message(text::printable(from.error));
}

}  // namespace

std::string encode(const Resource& resource, std::span<const QueuedSpan> spans) {
  wire::ExportTraceServiceRequest request;
  wire::ResourceSpans& all = *request.add_resource_spans();
  auto* const attributes = all.mutable_resource()->mutable_attributes();
  put(attributes, "service.name", resource.service);
  put(attributes, "service.instance.id", resource.instance);
  put(attributes, "telemetry.sdk.name", "turnstile");
  put(attributes, "telemetry.sdk.language", "cpp");
  put(attributes, "telemetry.sdk.version", TURNSTILE_VERSION);
  wire::ScopeSpans& scope = *all.add_scope_spans();
  scope.mutable_scope()->set_name("turnstile");
  scope.mutable_scope()->set_version(TURNSTILE_VERSION);
  for (const QueuedSpan& span : spans) write(span, resource.group, *scope.add_spans());
  return request.SerializeAsString();
}

std::optional<PartialSuccess> decode_answer(std::string_view body) {
  wire::ExportTraceServiceResponse answer;
  if (!answer.ParseFromArray(body.data(), static_cast<int>(body.size()))) return std::nullopt;
  return PartialSuccess{answer.partial_success().rejected_spans(), answer.partial_success().error_message()};
}

std::string decode_error(std::string_view body, std::string_view type) {
  if (type.starts_with("text/plain")) return text::printable(body.substr(0, kLongestReason));
  wire::RpcStatus status;
  if (!type.starts_with("application/x-protobuf") || !status.ParseFromArray(body.data(), static_cast<int>(body.size())))
    return {};
  return text::printable(std::string_view(status.message()).substr(0, kLongestReason));
}

}  // namespace turnstile::otlp
