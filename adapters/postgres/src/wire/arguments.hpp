#pragma once
// The arguments of queued statements, in one block of memory.

#include <libpq-fe.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "turnstile/transaction.hpp"

namespace turnstile::postgres {

/// Type numbers of PostgreSQL (src/include/catalog/pg_type.dat); they never change.
enum : Oid {
  kBytea = 17,
  kInt8 = 20,
  kText = 25,
  kFloat8 = 701,
  kTimestamptz = 1184,
  kNumeric = 1700,
  kUuid = 2950,
  kJsonb = 3802,
  kByteaArray = 1001,
  kTextArray = 1009,
  kInt8Array = 1016,
  kFloat8Array = 1022,
  kTimestamptzArray = 1185,
  kNumericArray = 1231,
  kUuidArray = 2951,
  kJsonbArray = 3807
};

class ArgumentBlock {
 public:
  /// Where a statement's arguments begin in the block.
  struct Mark {
    std::size_t first = 0;
  };

  [[nodiscard]] Mark mark() const noexcept { return {arguments_.size()}; }
  [[nodiscard]] std::size_t bytes() const noexcept { return block_.size(); }
  [[nodiscard]] std::size_t size() const noexcept { return arguments_.size(); }
  void clear() noexcept;

  /// Copies an argument. Throws SqlError: 22021 for a text with a NUL, which PostgreSQL's text cannot contain, 22008 for
  /// a time outside of the years 1 to 9999, 22P02 and 22003 for a Numeric that is no number or has too many digits.
  void add(const Param& param);
  void add_int(std::int64_t value);
  void add_text(std::string_view text);
  void add_null(Oid type);
  /// An argument of `size` bytes in PostgreSQL's binary form. The caller must fill it before the next add.
  std::span<char> add_binary(Oid type, std::size_t size);

  /// One letter for the type of each argument. Equal texts with equal signatures may share a prepared statement.
  void signature(Mark from, std::string& out) const;
  void forget(Mark from) noexcept { arguments_.resize(from.first); }

  /// In the form of libpq. Valid until the next call that changes the block.
  struct View {
    int count = 0;
    const Oid* types = nullptr;
    const char* const* values = nullptr;
    const int* lengths = nullptr;
    const int* formats = nullptr;
  };
  View view(std::size_t first, std::size_t count);

 private:
  struct Argument {
    std::size_t begin = 0;
    int length = 0;
    Oid type = 0;
    bool binary = false;
    bool null = false;
  };
  std::string block_;
  std::vector<Argument> arguments_;
  // The memory of view().
  std::vector<Oid> types_;
  std::vector<const char*> values_;
  std::vector<int> lengths_, formats_;
};

/// Writes integers in network byte order, as in PostgreSQL's binary forms.
class BinaryWriter {
 public:
  explicit BinaryWriter(std::span<char> to) noexcept : to_(to.data()) {}
  void int16(std::int16_t value) noexcept {
    *to_++ = static_cast<char>(static_cast<std::uint16_t>(value) >> 8);
    *to_++ = static_cast<char>(value);
  }
  void int32(std::int32_t value) noexcept { put(static_cast<std::uint32_t>(value)); }
  void int64(std::int64_t value) noexcept {
    put(static_cast<std::uint32_t>(static_cast<std::uint64_t>(value) >> 32));
    put(static_cast<std::uint32_t>(value));
  }
  void bytes(const void* from, std::size_t size) noexcept;
  /// The header of a one-dimensional array.
  static constexpr std::size_t kArrayHeader = 20;
  void array_header(Oid element, std::size_t count, bool with_null = false) noexcept;

 private:
  void put(std::uint32_t value) noexcept {
    for (int shift = 24; shift >= 0; shift -= 8) *to_++ = static_cast<char>(value >> shift);
  }
  char* to_;
};

}  // namespace turnstile::postgres
