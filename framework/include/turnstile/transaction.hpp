#pragma once
// SQL in a handler, independent of the database's client library. The handler's statements, the inbox rows and the
// commit are one transaction. The handler neither begins nor ends it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "turnstile/types.hpp"

namespace turnstile {

/// A decimal number as text ("12.50", "-3e8", "NaN"), for a column of type numeric: nothing is rounded. A view.
struct Numeric {
  std::string_view text;  ///< as PostgreSQL writes and reads it, without spaces
};
/// A JSON document as text, for a column of type jsonb. A view. PostgreSQL checks it.
struct Jsonb {
  std::string_view text;  ///< in UTF-8
};

/// A type whose arrays can be arguments of a statement.
template <class T>
concept ArrayElement = std::is_same_v<T, std::int64_t> || std::is_same_v<T, double> || std::is_same_v<T, std::string> ||
    std::is_same_v<T, std::string_view> || std::is_same_v<T, MessageId> || std::is_same_v<T, Timestamp> ||
    std::is_same_v<T, Numeric> || std::is_same_v<T, Jsonb>;

/// An argument of a statement. It is a view that must live until the call returns; queue() copies what it needs.
/// Booleans, numbers and texts are sent as text, and the server infers their type from the statement. The others have a
/// type of their own, and are sent in PostgreSQL's binary form, which the server reads several times as fast as text:
/// bytea, uuid, timestamptz, numeric and jsonb; and as arrays also int8[], float8[] and text[]. Cast them if the column
/// has another type: `unnest($1::text[]::date[])`.
class Param {
 public:
  /// The types of an argument. std::monostate is NULL.
  using Value =
      std::variant<std::monostate, bool, std::int64_t, double, std::string_view, std::span<const std::byte>, MessageId,
                   Timestamp, Numeric, Jsonb, std::span<const std::int64_t>, std::span<const double>,
                   std::span<const std::string>, std::span<const std::string_view>, std::span<const MessageId>,
                   std::span<const Timestamp>, std::span<const Numeric>, std::span<const Jsonb>>;

  /// NULL.
  Param(std::nullptr_t) noexcept {}  // NOLINT(google-explicit-constructor): arguments convert
  /// NULL.
  Param(std::nullopt_t) noexcept {}  // NOLINT
  /// A boolean.
  Param(bool v) noexcept : value_(v) {}  // NOLINT
  /// An integer.
  template <std::integral I>
    requires(!std::is_same_v<I, bool>)
  Param(I v)
  noexcept : value_(static_cast<std::int64_t>(v)) {}  // NOLINT
  /// A number.
  Param(double v) noexcept : value_(v) {}  // NOLINT
  /// Text.
  Param(const char* v) noexcept : value_(std::string_view(v)) {}  // NOLINT
  /// Text.
  Param(std::string_view v) noexcept : value_(v) {}  // NOLINT
  /// Text.
  Param(const std::string& v) noexcept : value_(std::string_view(v)) {}  // NOLINT
  /// Bytes.
  Param(std::span<const std::byte> v) noexcept : value_(v) {}  // NOLINT
  /// A uuid.
  Param(const MessageId& v) noexcept : value_(v) {}  // NOLINT
  /// A timestamptz. Years 1 to 9999; another one fails the statement with SqlError 22008.
  Param(Timestamp v) noexcept : value_(v) {}  // NOLINT
  /// A numeric. A text that is no number fails the statement with SqlError 22P02.
  Param(Numeric v) noexcept : value_(v) {}  // NOLINT
  /// A jsonb.
  Param(Jsonb v) noexcept : value_(v) {}  // NOLINT
  /// An array.
  template <ArrayElement T>
  Param(std::span<const T> v) noexcept : value_(v) {}  // NOLINT
  /// An array.
  template <ArrayElement T>
  Param(const std::vector<T>& v) noexcept : value_(std::span<const T>(v)) {}  // NOLINT
  /// The value, or NULL.
  template <class T>
  Param(const std::optional<T>& v) : value_(v ? Param(*v).value_ : Value{}) {}  // NOLINT

  /// The argument's value.
  [[nodiscard]] const Value& value() const noexcept { return value_; }

 private:
  Value value_;
};

/// The result of a statement. It is a copy, independent of the client library and of the transaction.
class Rows {
 public:
  Rows() = default;
  /// For adapters. `affected` is the number of rows that the statement changed.
  Rows(std::size_t columns, std::size_t affected) : columns_(columns), affected_(affected) {}
  /// For adapters. Adds the next cell, row by row.
  void add(std::optional<std::string_view> cell) {
    cells_.push_back(cell ? std::optional<std::string>(*cell) : std::nullopt);
  }

  /// The number of rows.
  [[nodiscard]] std::size_t size() const noexcept { return columns_ == 0 ? 0 : cells_.size() / columns_; }
  /// Whether there are no rows.
  [[nodiscard]] bool empty() const noexcept { return size() == 0; }
  /// The number of columns of a row.
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  /// The number of rows inserted, updated or deleted; for a SELECT, rows returned.
  [[nodiscard]] std::size_t affected() const noexcept { return affected_; }
  /// The text of the cell; absent for NULL. Throws std::out_of_range.
  [[nodiscard]] const std::optional<std::string>& at(std::size_t row, std::size_t column) const {
    if (column >= columns_)
      throw std::out_of_range("Rows: column " + std::to_string(column) + " of " + std::to_string(columns_));
    return cells_.at(row * columns_ + column);
  }
  /// The cell as a number or text. Throws std::out_of_range. Throws std::invalid_argument for NULL, or if the cell has
  /// another type.
  template <class T>
  [[nodiscard]] T get(std::size_t row, std::size_t column) const {
    const auto& cell = at(row, column);
    if (!cell) throw std::invalid_argument("Rows: NULL in column " + std::to_string(column));
    if constexpr (std::is_same_v<T, std::string>) return *cell;
    else if constexpr (std::is_same_v<T, bool>) return *cell == "t" || *cell == "true";
    else if constexpr (std::is_floating_point_v<T>) return static_cast<T>(std::stod(*cell));
    else return static_cast<T>(std::stoll(*cell));
  }

 private:
  std::size_t columns_ = 0;
  std::size_t affected_ = 0;
  std::vector<std::optional<std::string>> cells_;
};

/// The open transaction of the batch. It belongs to one worker thread: use it only during the handler's call.
class Transaction {
 public:
  virtual ~Transaction() = default;

  /// Runs a statement and waits for its result. Deferred statements are sent first. Throws SqlError (the message fails,
  /// and its transaction is rolled back) and StoreUnavailable.
  template <class... P>
  Rows exec(std::string_view sql, const P&... params) {
    if constexpr (sizeof...(P) == 0) return run(sql, {});
    else {
      const Param list[] = {Param(params)...};
      return run(sql, list);
    }
  }
  /// Queues a statement whose result is not needed. The statements of the whole batch are sent together through the
  /// pipeline (hazard: round-trips). If the statement fails, the message that queued it fails.
  template <class... P>
  void defer(std::string_view sql, const P&... params) {
    if constexpr (sizeof...(P) == 0) queue(sql, {});
    else {
      const Param list[] = {Param(params)...};
      queue(sql, list);
    }
  }

  /// exec() with the arguments in a list.
  virtual Rows run(std::string_view sql, std::span<const Param> params) = 0;
  /// defer() with the arguments in a list.
  virtual void queue(std::string_view sql, std::span<const Param> params) = 0;
};

}  // namespace turnstile
