/* digest.c - SHA-256, HMAC, MD5 and RS256 by OpenSSL; hexadecimal and base64 by hand. */
#include "io/digest.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/pem.h>
#include <string.h>

static const char g_base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void tern_sha256(const void *data, size_t bytes, uint8_t out[TERN_SHA256_BYTES])
{
    TERN_CHECK(EVP_Digest(data, bytes, out, NULL, EVP_sha256(), NULL) == 1);
}

void tern_md5(const void *data, size_t bytes, uint8_t out[TERN_MD5_BYTES])
{
    TERN_CHECK(EVP_Digest(data, bytes, out, NULL, EVP_md5(), NULL) == 1);
}

void tern_hmac_sha256(const void *key,
                      size_t key_bytes,
                      const void *data,
                      size_t bytes,
                      uint8_t out[TERN_SHA256_BYTES])
{
    TERN_CHECK(HMAC(EVP_sha256(), key, (int)key_bytes, data, bytes, out, NULL) != NULL);
}

void tern_hex(const uint8_t *data, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i++) {
        out[2 * i] = "0123456789abcdef"[data[i] >> 4];
        out[2 * i + 1] = "0123456789abcdef"[data[i] & 15];
    }
    out[2 * bytes] = '\0';
}

void tern_base64(const uint8_t *data, size_t bytes, char *out)
{
    for (size_t i = 0; i < bytes; i += 3) {
        size_t left = bytes - i;
        uint32_t group = (uint32_t)data[i] << 16 | (left > 1 ? (uint32_t)data[i + 1] << 8 : 0) |
                         (left > 2 ? data[i + 2] : 0U);
        *out++ = g_base64[group >> 18];
        *out++ = g_base64[group >> 12 & 63];
        *out++ = left > 1 ? g_base64[group >> 6 & 63] : '=';
        *out++ = left > 2 ? g_base64[group & 63] : '=';
    }
    *out = '\0';
}

bool tern_base64_decode(const char *text, uint8_t *out, size_t capacity, size_t *bytes_out)
{
    size_t length = strlen(text), count = 0;
    while (length > 0 && text[length - 1] == '=') {
        length--;
    }
    uint32_t group = 0;
    int bits = 0;
    for (size_t i = 0; i < length; i++) {
        const char *found = memchr(g_base64, text[i], 64);
        if (found == NULL) {
            return false;
        }
        group = group << 6 | (uint32_t)(found - g_base64);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            if (count == capacity) {
                return false;
            }
            out[count++] = (uint8_t)(group >> bits & 255);
        }
    }
    *bytes_out = count;
    return bits != 6;
}

tern_status tern_base64_url(const void *data, size_t bytes, struct tern_text *out)
{
    char *text = tern_alloc("base64", 4 * (bytes / 3 + 1) + 1);
    if (text == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for %zu bytes of base64", bytes);
    }
    tern_base64(data, bytes, text);
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
    }
    while (length > 0 && text[length - 1] == '=') {
        length--;
    }
    tern_status status = tern_text_append(out, text, length);
    tern_free(text);
    return status;
}

tern_status tern_rs256(const char *pem, const void *data, size_t bytes, struct tern_text *out)
{
    uint8_t signature[1024]; /* RSA keys up to 8192 bits */
    size_t signature_bytes = sizeof signature;
    BIO *bio = BIO_new_mem_buf(pem, -1);
    EVP_PKEY *key = bio != NULL ? PEM_read_bio_PrivateKey(bio, NULL, NULL, NULL) : NULL;
    EVP_MD_CTX *context = EVP_MD_CTX_new();
    bool is_done = key != NULL && context != NULL && EVP_PKEY_get_base_id(key) == EVP_PKEY_RSA &&
                   EVP_DigestSignInit(context, NULL, EVP_sha256(), NULL, key) == 1 &&
                   EVP_DigestSign(context, signature, &signature_bytes, data, bytes) == 1;
    EVP_MD_CTX_free(context);
    EVP_PKEY_free(key);
    BIO_free(bio);
    return is_done ? tern_base64_url(signature, signature_bytes, out)
                   : tern_fail(TERN_ERR_CONFIG, "the private key is no RSA key in PEM form");
}
