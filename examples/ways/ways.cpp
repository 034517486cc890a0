#include "ways.hpp"

#include <pqxx/nontransaction>
#include <pqxx/transaction>
#include <turnstile/postgres/guards.hpp>
#include <turnstile/postgres/pqxx.hpp>
#include <turnstile/postgres/store.hpp>

using namespace turnstile;

namespace {

void withdraw(Transaction& tx, const Payment& payment) {
  tx.exec("UPDATE account SET cents = cents - $1 WHERE name = $2", kCents, payment.account);
}

bool is_noted(pqxx::connection& connection, const Payment& payment) {
  pqxx::nontransaction look{connection};
  auto tx = postgres::borrow(look);
  return !tx.exec("SELECT 1 FROM note WHERE payment = $1", payment.id()).empty();
}

void note_and_withdraw(pqxx::connection& connection, const Payment& payment) {
  pqxx::work work{connection};
  auto tx = postgres::borrow(work);
  tx.exec("INSERT INTO note (payment) VALUES ($1)", payment.id());
  withdraw(tx, payment);
  work.commit();
}

// Wrong: there is a gap between the check and the change. In production it is short, but with enough requests some fall
// into it. Here the processes wait in it for each other, so that both always do.
bool check_then_act(Process& me, const Payment& payment) {
  if (is_noted(me.connection, payment)) return false;
  me.shared.meet();
  note_and_withdraw(me.connection, payment);
  return true;
}

// Wrong: the lock closes the gap only for the threads of this process. The other process has a lock of its own.
bool in_process_lock(Process& me, const Payment& payment) {
  const std::lock_guard held{me.mutex};
  if (is_noted(me.connection, payment)) return false;
  me.shared.meet();
  note_and_withdraw(me.connection, payment);
  return true;
}

/// The right ways: `may_act` and the withdrawal are one transaction.
template <class MayAct>
bool pay_if(Process& me, const Payment& payment, MayAct may_act) {
  pqxx::work work{me.connection};
  auto tx = postgres::borrow(work);
  const bool mine = may_act(tx);
  if (mine) withdraw(tx, payment);
  work.commit();
  return mine;
}

bool one_time_token(Process& me, const Payment& payment) {
  return pay_if(me, payment, [&](Transaction& tx) {
    return postgres::one_time_token::redeem(tx, payment.token, payment.id(), {kSchema, "one_time_token"}).applied();
  });
}

bool unique_key(Process& me, const Payment& payment) {
  return pay_if(me, payment, [&](Transaction& tx) {
    return postgres::unique(tx, "payment", {{"id", payment.id()}}, {{"cents", kCents}}).applied();
  });
}

bool row_lock(Process& me, const Payment& payment) {
  return pay_if(me, payment, [&](Transaction& tx) {
    const auto locked = postgres::row_lock(tx, "request", {{"id", payment.id()}}, {"state"});
    if (!locked.applied() || locked.found.get<std::string>(0, 0) != "open") return false;
    tx.exec("UPDATE request SET state = 'paid' WHERE id = $1", payment.id());
    return true;
  });
}

bool state_machine(Process& me, const Payment& payment) {
  return pay_if(me, payment, [&](Transaction& tx) {
    return postgres::transition(tx, "request", {{"id", payment.id()}}, "state", "open", "paid").applied();
  });
}

// The withdrawal is part of the guard: it sets the balance that was read, less the payment, if the row has not changed.
bool optimistic_lock(Process& me, const Payment& payment) {
  pqxx::work work{me.connection};
  auto tx = postgres::borrow(work);
  const bool mine = postgres::version(tx, "account", {{"name", payment.account}}, "version", payment.version_read,
                                      {{"cents", payment.balance_read - kCents}})
                        .applied();
  work.commit();
  return mine;
}

bool inbox(Process& me, const Payment& payment) {
  const ports::InboxEntry message{MessageId::from(payment.id()), payment.number};
  const bool mine = me.session->begin(me.scope, {&message, 1}).front() == ports::Admission::fresh;
  if (mine) {
    me.session->transaction().exec("UPDATE turnstile_ways.account SET cents = cents - $1 WHERE name = $2", kCents,
                                   payment.account);
  }
  me.session->commit();
  return mine;
}

}  // namespace

Process::Process(const std::string& url, std::size_t rank, Shared& with)
    : connection(url),
      shared(with),
      store(postgres::open_store({.url = Secret(url), .schema = kSchema, .connections = 1})) {
  pqxx::nontransaction{connection}.exec("SET search_path = turnstile_ways");
  // Each process reads its own partition. The id identifies a payment, independently of its origin.
  const TopicPartition at{"payments", static_cast<std::int32_t>(rank)};
  scope.handler = store->register_handler("pay");
  scope.fence = store->partitions().claim_partitions("ways", {&at, 1}, std::chrono::seconds(5)).at(0).fence;
  session = store->open_session();
}

const std::vector<Way>& ways() {
  static const std::vector<Way> all{
      {"check, then act", false, check_then_act},
      {"lock within the process", false, in_process_lock},
      {"one-time token", true, one_time_token},
      {"unique business key", true, unique_key},
      {"row lock (select for update)", true, row_lock},
      {"state machine", true, state_machine},
      {"optimistic lock (version)", true, optimistic_lock},
      {"inbox of message ids", true, inbox},
  };
  return all;
}
