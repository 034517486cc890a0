// Makes a Transaction of a libpqxx transaction. pqxx_bridge.cpp is the other direction.

#include <optional>
#include <pqxx/connection>
#include <pqxx/except>
#include <pqxx/result>
#include <pqxx/version>
#include <string>
#include <vector>

#include "turnstile/error.hpp"
#include "turnstile/ports/handler_sql.hpp"
#include "turnstile/ports/param_text.hpp"
#include "turnstile/postgres/pqxx.hpp"
#include "wire/errors.hpp"

#if PQXX_VERSION_MAJOR > 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 6)
#include <pqxx/params>
#else
#include <pqxx/prepared_statement>
#endif

namespace turnstile::postgres {

namespace {

using Arguments = std::vector<std::optional<std::string>>;

// A template, so that only the call that this libpqxx has must exist.
template <class Pqxx>
pqxx::result send(Pqxx& transaction, const std::string& sql, const Arguments& arguments) {
  if (arguments.empty()) return transaction.exec(sql);
#if PQXX_VERSION_MAJOR > 7 || (PQXX_VERSION_MAJOR == 7 && PQXX_VERSION_MINOR >= 6)
  pqxx::params params;
  for (const auto& argument : arguments) {
    if (argument) params.append(*argument);
    else params.append();
  }
  // From 7.9.3 exec() accepts them, and exec_params() is deprecated.
  if constexpr (requires { transaction.exec(sql, params); }) return transaction.exec(sql, params);
  else return transaction.exec_params(sql, params);
#else
  std::vector<const char*> texts;
  for (const auto& argument : arguments) texts.push_back(argument ? argument->c_str() : nullptr);
  return transaction.exec_params(sql, pqxx::prepare::make_dynamic_params(texts));
#endif
}

Rows rows_of(const pqxx::result& result) {
  Rows rows(static_cast<std::size_t>(result.columns()), static_cast<std::size_t>(result.affected_rows()));
  for (const auto& row : result) {
    for (const auto& field : row) {
      if (field.is_null()) rows.add(std::nullopt);
      else rows.add(std::string_view(field.c_str(), field.size()));
    }
  }
  return rows;
}

/// libpqxx returns the server's whole text: "ERROR:  the message", then DETAIL and more, which may contain values
/// (hazard: error-detail).
ServerError server_error(std::string_view what, std::string_view sqlstate) {
  what = what.substr(0, what.find('\n'));
  if (const auto colon = what.find(":  "); colon != what.npos && colon < 8) what.remove_prefix(colon + 3);
  return {std::string(sqlstate), std::string(what), false};
}

}  // namespace

Rows BorrowedTransaction::run(std::string_view sql, std::span<const Param> params) {
  ports::check_borrowed_sql(sql);
  Arguments arguments;
  ports::each_param(params, [&](const Param& param) { arguments.push_back(ports::param_text(param)); });
  try {
    return rows_of(send(transaction_, std::string(sql), arguments));
  } catch (const pqxx::deadlock_detected& error) {
    throw_handler_error(server_error(error.what(), "40P01"));
  } catch (const pqxx::serialization_failure& error) {
    throw_handler_error(server_error(error.what(), "40001"));
  } catch (const pqxx::broken_connection& error) {
    // libpqxx also throws it for a class 08 error of a foreign server.
    if (transaction_.conn().is_open()) throw_handler_error(server_error(error.what(), "08000"));
    throw_lost({server_error(error.what(), "")});
  } catch (const pqxx::sql_error& error) {
    throw_handler_error(server_error(error.what(), error.sqlstate()));
  } catch (const pqxx::usage_error& error) {
    throw Error(Code::api_misused, std::string("borrow(): ") + error.what());
  }
}

void BorrowedTransaction::queue(std::string_view sql, std::span<const Param> params) { run(sql, params); }

BorrowedTransaction borrow(pqxx::transaction_base& transaction) { return BorrowedTransaction(transaction); }

}  // namespace turnstile::postgres
