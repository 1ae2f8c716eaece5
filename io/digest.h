/* digest.h - the hashes and encodings that object stores ask for; the only user of OpenSSL in io. */
#ifndef TERN_IO_DIGEST_H
#define TERN_IO_DIGEST_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdint.h>

enum {
    TERN_SHA256_BYTES = 32,
    TERN_SHA256_HEX_BYTES = 65,
    TERN_SHA256_BASE64_BYTES = 45,
    TERN_MD5_BYTES = 16,
    TERN_MD5_BASE64_BYTES = 25
};

void tern_sha256(const void *data, size_t bytes, uint8_t out[TERN_SHA256_BYTES]);
void tern_hmac_sha256(const void *key,
                      size_t key_bytes,
                      const void *data,
                      size_t bytes,
                      uint8_t out[TERN_SHA256_BYTES]);
void tern_md5(const void *data, size_t bytes, uint8_t out[TERN_MD5_BYTES]);
/* Lower-case digits, NUL-terminated: 2 * bytes + 1. */
void tern_hex(const uint8_t *data, size_t bytes, char *out);
/* With padding, NUL-terminated: 4 * ceil(bytes / 3) + 1. */
void tern_base64(const uint8_t *data, size_t bytes, char *out);
/* False: no base64, or longer than capacity. */
bool tern_base64_decode(const char *text, uint8_t *out, size_t capacity, size_t *bytes_out);
/* Appends the RS256 signature of data by a PEM private key, in URL-safe base64 without padding.
 * TERN_ERR_CONFIG: no such key. */
TERN_MUST_CHECK tern_status tern_rs256(const char *pem,
                                       const void *data,
                                       size_t bytes,
                                       struct tern_text *out);
/* Appends URL-safe base64 without padding. */
TERN_MUST_CHECK tern_status tern_base64_url(const void *data, size_t bytes, struct tern_text *out);

#endif
