#include "sys/seal.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/digest.h"
#include "base/limits.h"
#include "sys/file.h"
#include "sys/trust.h"

enum { KEY_BYTES = 32, NONCE_BYTES = 12, TAG_BYTES = 16 };

static int fill_random(void *data, size_t n, stk_err *err)
{
    if (getrandom(data, n, 0) != (ssize_t)n) {
        return stk_err_sys(err, STK_E_SYS, errno, "this machine gives no random bytes");
    }
    return 0;
}

/* Makes the key's file whole, or leaves the one that another process made meanwhile. */
static int make_key(const char *path, stk_err *err)
{
    unsigned char fresh[KEY_BYTES];
    STK_TEXT_AUTO folder = stk_file_printf("%s", path);
    STK_TEXT_AUTO beside = stk_file_printf("%s.%d", path, (int)getpid());
    STK_TRY(stk_err_if_null(folder, err));
    STK_TRY(stk_err_if_null(beside, err));
    *strrchr(folder, '/') = '\0';
    STK_TRY(stk_file_mkdirs(folder, 0700, err));
    STK_TRY(fill_random(fresh, sizeof fresh, err));
    int rc = stk_file_write_atomic(beside, fresh, sizeof fresh, 0600, err);
    if (rc == 0 && link(beside, path) != 0 && errno != EEXIST) {
        rc = stk_err_sys(err, STK_E_SYS, errno, "the key '%s' can't be made", path);
    }
    OPENSSL_cleanse(fresh, sizeof fresh);
    (void)unlink(beside);
    return rc;
}

static int check_key(int fd, const char *path, stk_err *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "'%s' can't be read", path);
    }
    if (st.st_uid != geteuid() || (st.st_mode & 077) != 0) {
        stk_err_set(err, STK_E_UNTRUSTED, "others can read the key of the secrets, '%s'", path);
        stk_err_hint(err, "make it your own file with mode 0600 (`chmod 600`), and give the "
                          "secrets that it protected new values");
        return STK_E_UNTRUSTED;
    }
    if (st.st_size != KEY_BYTES) {
        return stk_err_set(err, STK_E_ENV, "'%s' isn't a key of %d bytes; move it away", path,
                           KEY_BYTES);
    }
    return 0;
}

/* Derives the key from the user's file, which it makes if there is none. */
static int get_key(unsigned char ret_key[STK_DIGEST_BYTES], stk_err *err)
{
    static const char use[] = "stoker seal, AES-256-GCM";
    STK_TEXT_AUTO path = stk_trust_config("secrets.key");
    STK_TEXT_AUTO raw = NULL;
    size_t len = 0;
    STK_TRY(stk_err_if_null(path, err));
    STK_FD_AUTO fd = stk_file_open_regular(path, O_RDONLY, 0);
    if (fd < 0 && errno == ENOENT) {
        STK_TRY(make_key(path, err));
        fd = stk_file_open_regular(path, O_RDONLY, 0);
    }
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "'%s' can't be opened", path);
    }
    STK_TRY(check_key(fd, path, err));
    STK_TRY(stk_file_read_fd(fd, path, KEY_BYTES, &raw, &len, err));
    stk_hmac_sha256(raw, len, use, sizeof use - 1, ret_key);
    OPENSSL_cleanse(raw, len);
    return 0;
}

typedef struct cipher {
    EVP_CIPHER_CTX *ctx;
    unsigned char key[STK_DIGEST_BYTES];
} cipher;

static void end_cipher(cipher *c)
{
    EVP_CIPHER_CTX_free(c->ctx);
    OPENSSL_cleanse(c->key, sizeof c->key);
}

static int begin_cipher(cipher *c, const unsigned char *nonce, const char *about, int encrypts,
                        stk_err *err)
{
    int n = 0;
    STK_TRY(get_key(c->key, err));
    c->ctx = EVP_CIPHER_CTX_new();
    STK_TRY(stk_err_if_null(c->ctx, err));
    if (EVP_CipherInit_ex(c->ctx, EVP_aes_256_gcm(), NULL, c->key, nonce, encrypts) != 1 ||
        EVP_CipherUpdate(c->ctx, NULL, &n, (const unsigned char *)about, (int)strlen(about)) != 1) {
        return stk_err_set(err, STK_E_ENV, "libcrypto has no AES-256-GCM here");
    }
    return 0;
}

static void put_hex(stk_buf *out, const unsigned char *data, size_t n)
{
    static const char digits[] = "0123456789abcdef";
    for (size_t i = 0; i < n; i++) {
        stk_buf_char(out, digits[data[i] >> 4]);
        stk_buf_char(out, digits[data[i] & 15]);
    }
}

int stk_seal(const char *about, const char *text, size_t len, stk_buf *ret_hex, stk_err *err)
{
    __attribute__((cleanup(end_cipher))) cipher c = {NULL};
    unsigned char nonce[NONCE_BYTES], tag[TAG_BYTES];
    int n = 0, last = 0;
    if (len > STK_LIMIT_RESULT_BYTES) {
        return stk_err_set(err, STK_E_LIMIT, "a secret has at most %d bytes",
                           STK_LIMIT_RESULT_BYTES);
    }
    STK_TRY(fill_random(nonce, sizeof nonce, err));
    STK_TRY(begin_cipher(&c, nonce, about, 1, err));
    STK_TEXT_AUTO sealed = malloc(len + 1);
    STK_TRY(stk_err_if_null(sealed, err));
    if (EVP_CipherUpdate(c.ctx, (unsigned char *)sealed, &n, (const unsigned char *)text,
                         (int)len) != 1 ||
        EVP_CipherFinal_ex(c.ctx, (unsigned char *)sealed + n, &last) != 1 ||
        EVP_CIPHER_CTX_ctrl(c.ctx, EVP_CTRL_AEAD_GET_TAG, TAG_BYTES, tag) != 1) {
        return stk_err_set(err, STK_E_ENV, "libcrypto can't encrypt here");
    }
    put_hex(ret_hex, nonce, sizeof nonce);
    put_hex(ret_hex, (unsigned char *)sealed, len);
    put_hex(ret_hex, tag, sizeof tag);
    return stk_buf_check(ret_hex, err);
}

static int digit_of(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    return -1;
}

/* The bytes of hex digits, malloc'd; NULL with *ret_len 0: they are none. */
static unsigned char *bytes_of(const char *hex, size_t *ret_len)
{
    size_t n = strlen(hex);
    unsigned char *data = malloc(n / 2 + 1);
    *ret_len = 0;
    for (size_t i = 0; data != NULL && i < n / 2; i++) {
        int high = digit_of(hex[2 * i]), low = digit_of(hex[2 * i + 1]);
        if (high < 0 || low < 0) {
            return data;
        }
        data[i] = (unsigned char)(high * 16 + low);
    }
    if (n % 2 == 0) {
        *ret_len = n / 2;
    }
    return data;
}

int stk_seal_open(const char *about, const char *hex, stk_buf *ret_text, stk_err *err)
{
    __attribute__((cleanup(end_cipher))) cipher c = {NULL};
    int n = 0, last = 0;
    size_t len = 0;
    STK_TEXT_AUTO sealed = (char *)bytes_of(hex, &len);
    STK_TRY(stk_err_if_null(sealed, err));
    if (len < NONCE_BYTES + TAG_BYTES || len > STK_LIMIT_RESULT_BYTES) {
        return stk_err_set(err, STK_E_USAGE, "this is no sealed text");
    }
    size_t body = len - NONCE_BYTES - TAG_BYTES;
    unsigned char *at = (unsigned char *)sealed + NONCE_BYTES;
    STK_TRY(begin_cipher(&c, (unsigned char *)sealed, about, 0, err));
    STK_TEXT_AUTO text = malloc(body + 1);
    STK_TRY(stk_err_if_null(text, err));
    bool is_good = EVP_CipherUpdate(c.ctx, (unsigned char *)text, &n, at, (int)body) == 1 &&
                   EVP_CIPHER_CTX_ctrl(c.ctx, EVP_CTRL_AEAD_SET_TAG, TAG_BYTES, at + body) == 1 &&
                   EVP_CipherFinal_ex(c.ctx, (unsigned char *)text + n, &last) == 1;
    if (is_good) {
        stk_buf_add(ret_text, text, body);
    }
    OPENSSL_cleanse(text, body);
    if (!is_good) {
        return stk_err_set(err, STK_E_USAGE,
                           "the secret '%s' can't be read: it was written with another key, for "
                           "another name, or changed",
                           about);
    }
    return stk_buf_check(ret_text, err);
}
