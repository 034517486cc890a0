#include "message/digest.hpp"

#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <memory>
#include <new>

namespace turnstile::detail {
namespace {

struct FreeContext {
  void operator()(EVP_MD_CTX* context) const noexcept { EVP_MD_CTX_free(context); }
  void operator()(EVP_MAC_CTX* context) const noexcept { EVP_MAC_CTX_free(context); }
};

// With EVP_sha256() OpenSSL 3 looks up its implementation for every digest. Fetched once, a short id is hashed in a
// fraction of the time. It lives for the whole process, because any thread may hash until the very end.
const EVP_MD* algorithm() {
  static const EVP_MD* const fetched = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  return fetched != nullptr ? fetched : EVP_sha256();
}

/// A context of HMAC with SHA-256, without a key; fetched once for the same reason. Null if there is no memory.
std::unique_ptr<EVP_MAC_CTX, FreeContext> mac_context() {
  static EVP_MAC* const fetched = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
  std::unique_ptr<EVP_MAC_CTX, FreeContext> context{fetched == nullptr ? nullptr : EVP_MAC_CTX_new(fetched)};
  char digest[] = "SHA256";
  const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                   OSSL_PARAM_construct_end()};
  if (context && EVP_MAC_CTX_set_params(context.get(), parameters) != 1) context.reset();
  return context;
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

Sha256 hmac_sha256(std::string_view secret, std::string_view bytes) {
  thread_local const auto context = mac_context();
  const auto* const key = reinterpret_cast<const unsigned char*>(secret.data());
  const auto* const text = reinterpret_cast<const unsigned char*>(bytes.data());
  Sha256 out{};
  std::size_t length = 0;
  if (!context || EVP_MAC_init(context.get(), key, secret.size(), nullptr) != 1 ||
      EVP_MAC_update(context.get(), text, bytes.size()) != 1 ||
      EVP_MAC_final(context.get(), out.data(), &length, out.size()) != 1 || length != out.size()) {
    throw std::bad_alloc();
  }
  return out;
}

}  // namespace turnstile::detail
