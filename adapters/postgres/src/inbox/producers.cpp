#include "inbox/producers.hpp"

#include <map>
#include <string_view>

#include "inbox/calls.hpp"
#include "wire/decode.hpp"
#include "wire/encode.hpp"
#include "wire/text.hpp"

namespace turnstile::postgres {

namespace {

class PostgresProducers final : public ports::Producers {
 public:
  explicit PostgresProducers(std::shared_ptr<Shared> shared) : shared_(std::move(shared)) {}

  ports::ProducerSession open(const ports::ProducerTerms& terms) override {
    const auto kept = call([&](Pipeline& pipeline) {
      ArgumentBlock& to = pipeline.arguments();
      if (terms.id) add_uuid(to, *terms.id);
      else to.add_null(kUuid);
      to.add_text(printable(terms.name));
      to.add_int(terms.expiry.count());
      to.add_int(terms.keep_for.count());
      pipeline.add(shared_->statements.open_producer, kCaller, Pipeline::Keep::binary);
    });
    return {id_in(kept[0].get(), 0), std::string(bytes_in(kept[0].get(), 0, 1))};
  }

  bool heartbeat(const MessageId& id) override {
    const auto kept = call([&](Pipeline& pipeline) {
      add_uuid(pipeline.arguments(), id);
      pipeline.add(shared_->statements.producer_heartbeat, kCaller, Pipeline::Keep::text);
    });
    return std::string_view(PQcmdTuples(kept[0].get())) == "1";
  }

  std::vector<std::optional<std::string>> secrets(std::span<const MessageId> ids) override {
    const auto kept = call([&](Pipeline& pipeline) {
      add_uuid_array(pipeline.arguments(), ids.size(), [&](std::size_t i) -> const MessageId& { return ids[i]; });
      pipeline.add(shared_->statements.producer_secrets, kCaller, Pipeline::Keep::binary);
    });
    std::map<MessageId, std::string> known;
    for (int row = 0; row < PQntuples(kept[0].get()); ++row)
      known.emplace(id_in(kept[0].get(), row), bytes_in(kept[0].get(), row, 1));
    std::vector<std::optional<std::string>> secrets(ids.size());
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (const auto found = known.find(ids[i]); found != known.end()) secrets[i] = found->second;
    }
    return secrets;
  }

  std::int64_t expire() override {
    const auto kept = call_in_transaction(*shared_, [&](Pipeline& pipeline) {
      pipeline.add(shared_->statements.expire_producers, kCaller, Pipeline::Keep::binary);
      pipeline.add(shared_->statements.forget_producers, kCaller);
    });
    return int64_in(kept[0].get(), 0, 0);
  }

 private:
  std::vector<Result> call(const Fill& fill) { return postgres::call(*shared_, fill); }

  std::shared_ptr<Shared> shared_;
};

}  // namespace

std::shared_ptr<ports::Producers> open_producers(std::shared_ptr<Shared> shared) {
  return std::make_shared<PostgresProducers>(std::move(shared));
}

}  // namespace turnstile::postgres
