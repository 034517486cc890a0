#pragma once
// The memory that the headers of a partition's records take. To read the headers of each record before it waits would
// cost a sixth of a fast handler's time, and as much memory again. So they are read of one record of 16. After a record
// with large headers, they are read of each of the next 1,024. Until then, 16 such records are not counted on average.
// Pure; not thread-safe.

#include <cstddef>
#include <span>

#include "turnstile/message.hpp"

namespace turnstile::detail {

class HeaderSizes {
 public:
  /// The approximate memory of the headers of these messages, which follow those of the last call.
  std::size_t of(std::span<const Message> messages);

 private:
  std::size_t each_for_ = 16;  ///< how many more records are read one by one
};

}  // namespace turnstile::detail
