#include "errors.hpp"

#include <fmt/format.h>

#include <cerrno>
#include <system_error>

#include "error_code.hpp"
#include "turnstile/shell.hpp"

namespace turnstile::kafka {
namespace {

std::string remedy(rd_kafka_resp_err_t code, const Where& at) {
  const std::string_view topic = at.topic.empty() ? "TOPIC" : at.topic;
  const std::string_view group = at.group.empty() ? "GROUP" : at.group;
  const std::string plaintext =
      at.plaintext_unanswered ? " If they require TLS or SASL, set security.protocol: it is not set." : "";
  switch (code) {
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
      return fmt::format(
          "Create the topic (kafka-topics.sh --bootstrap-server {} --create --topic {} --partitions 4), or correct its name.",
          at.broker, topic);
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
      return "Kafka allows 1 to 249 letters, digits, '.', '_' and '-' in a topic's name. Correct the name.";
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
      return fmt::format(
          "Grant this user Read to consume it, Write to produce to it, Create if Turnstile is to create it "
          "(kafka-acls.sh --add --allow-principal User:… --operation Read --topic {}).",
          topic);
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
      return fmt::format(
          "Grant this user Read on the group (kafka-acls.sh --add --allow-principal User:… --operation Read "
          "{}), or set another group.id.",
          text::shell_option("--group", group, "GROUP"));
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
      return "Grant this user IdempotentWrite on the cluster (brokers below 2.8), or set enable.idempotence to false.";
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
      return "Correct sasl.username and sasl.password (or the key and the certificate), and sasl.mechanisms.";
    case RD_KAFKA_RESP_ERR__SSL: return "Correct ssl.ca.location and the certificates, or security.protocol.";
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
    case RD_KAFKA_RESP_ERR_INVALID_MSG_SIZE:
      return "Raise message.max.bytes here and max.message.bytes of the topic, or send smaller messages.";
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT:
    case RD_KAFKA_RESP_ERR__TIMED_OUT_QUEUE:
    case RD_KAFKA_RESP_ERR_REQUEST_TIMED_OUT:
      return "Check that the brokers run, and that this machine can reach their advertised.listeners." + plaintext;
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
      return "Check that the brokers run, that this machine can reach their advertised.listeners, and bootstrap.servers." +
             plaintext;
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__RESOLVE: return "Check bootstrap.servers, and that the brokers run." + plaintext;
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE:
    case RD_KAFKA_RESP_ERR__NO_OFFSET:
      return "The group has no offset there, or the broker has deleted those records, and auto.offset.reset is error. Set "
             "auto.offset.reset to earliest or latest, or set the group's offsets (kafka-consumer-groups.sh --reset-offsets).";
    case RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL:
      return fmt::format(
          "Another member of group {} uses a different partition.assignment.strategy. Set the same strategy in all members.",
          group);
    case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
      return "Set session.timeout.ms between the broker's group.min.session.timeout.ms and group.max.session.timeout.ms.";
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS:
    case RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS_AFTER_APPEND:
      return "Fewer replicas are in sync than min.insync.replicas requires. Bring brokers back, or lower min.insync.replicas.";
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
      return "Another running member has the same group.instance.id. Give each member its own.";
    default: return {};
  }
}

}  // namespace

bool for_good(rd_kafka_resp_err_t code) noexcept {
  switch (code) {
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL:
    case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
    case RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET:
    case RD_KAFKA_RESP_ERR__FATAL: return true;
    default: return false;
  }
}

bool knows_no_topic(rd_kafka_resp_err_t code) noexcept {
  return code == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART || code == RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC ||
         code == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION;
}

bool no_longer_ours(rd_kafka_resp_err_t code) noexcept {
  switch (code) {
    case RD_KAFKA_RESP_ERR__STATE:
    case RD_KAFKA_RESP_ERR__NO_OFFSET:
    case RD_KAFKA_RESP_ERR__ASSIGNMENT_LOST:
    case RD_KAFKA_RESP_ERR__WAIT_COORD:
    case RD_KAFKA_RESP_ERR__DESTROY:
    case RD_KAFKA_RESP_ERR_ILLEGAL_GENERATION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID:
    case RD_KAFKA_RESP_ERR_REBALANCE_IN_PROGRESS:
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID: return true;
    default: return false;
  }
}

namespace {

std::string_view name_of(rd_kafka_resp_err_t code) {
  // librdkafka's words, "All broker connections are down", look as if all brokers were down. A client that has a
  // connection to only one of them reports the same when that one ends.
  if (code == RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN) return "this client has no connection to any broker now";
  return rd_kafka_err2str(code);
}

}  // namespace

std::string explain(rd_kafka_resp_err_t code, std::string_view detail, const Where& at) {
  std::string text = fmt::format("kafka {}: ", at.broker);
  if (!at.topic.empty()) text += fmt::format("topic {}: ", at.topic);
  const std::string_view name = name_of(code);
  if (detail.find(name) != std::string_view::npos) text += detail;
  else text += detail.empty() ? std::string(name) : fmt::format("{} ({})", name, detail);
  if (!text.ends_with('.')) text += '.';
  // librdkafka reports it in the text of other errors only.
  if (detail.find(std::generic_category().message(EMFILE)) != std::string_view::npos)
    text += " This process has no file descriptor left. Raise its limit (ulimit -n, or LimitNOFILE of its service).";
  else if (const auto what_to_do = remedy(code, at); !what_to_do.empty()) text += " " + what_to_do;
  return text;
}

BrokerError broker_error(rd_kafka_resp_err_t code, std::string_view detail, const Where& where) {
  return BrokerError(code_of(code), explain(code, detail, where));
}

}  // namespace turnstile::kafka
