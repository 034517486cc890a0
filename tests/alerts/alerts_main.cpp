// What tests/alerts/run needs of Kafka.
//
//   alerts create BROKERS TOPIC PARTITIONS
//   alerts delete BROKERS TOPIC
//   alerts publish BROKERS TOPIC COUNT PAYLOAD     each record has an id of its own and another key

#include <iostream>
#include <string>

#include "turnstile/ids.hpp"
#include "turnstile/kafka/admin.hpp"
#include "turnstile/kafka/broker.hpp"
#include "turnstile/ports/broker.hpp"

using namespace turnstile;

int main(int argc, char** argv) try {
  const std::string verb = argc > 3 ? argv[1] : "";
  const kafka::Settings settings{{"bootstrap.servers", argc > 2 ? argv[2] : ""}};
  if (verb == "create" && argc == 5) {
    kafka::create_topic(settings, {argv[3], std::stoi(argv[4]), -1, {}});
  } else if (verb == "delete" && argc == 4) {
    kafka::delete_topic(settings, argv[3]);
  } else if (verb == "publish" && argc == 6) {
    const auto producer = kafka::open_broker(settings, nullptr)->open_producer();
    for (int n = std::stoi(argv[4]); n > 0; --n) {
      OwnedMessage message;
      message.topic = argv[3];
      message.partition = -1;
      message.key = std::to_string(n);
      message.payload = argv[5];
      message.headers = {{"message-id", new_message_id().text()}};
      producer->send(message);
    }
  } else {
    std::cerr << "usage: at the top of tests/alerts/alerts_main.cpp\n";
    return 2;
  }
  return 0;
} catch (const std::exception& error) {
  std::cerr << "alerts: " << error.what() << '\n';
  return 1;
}
