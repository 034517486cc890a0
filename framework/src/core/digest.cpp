#include "core/digest.hpp"

#include <openssl/evp.h>

#include <memory>
#include <new>

namespace turnstile {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
};

// EVP_sha256() makes OpenSSL 3 look its implementation up at every digest; fetched once, a short id is hashed in a
// fraction of the time. Lives for the whole process, because any thread may hash until the very end.
const EVP_MD* algorithm() {
  static const EVP_MD* const fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return fetched != nullptr ? fetched : EVP_sha256();
}

}  // namespace

Sha256 sha256(std::string_view bytes) {
  thread_local const std::unique_ptr<EVP_MD_CTX, FreeContext> context{EVP_MD_CTX_new()};
  Sha256 out{};
  unsigned int length = 0;
  if (!context || EVP_DigestInit_ex(context.get(), algorithm(), nullptr) != 1 ||
      EVP_DigestUpdate(context.get(), bytes.data(), bytes.size()) != 1 ||
      EVP_DigestFinal_ex(context.get(), out.data(), &length) != 1 || length != out.size()) {
    throw std::bad_alloc();
  }
  return out;
}

}  // namespace turnstile
