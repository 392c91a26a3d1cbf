/* An image of one layer, made without a container engine: layer, configuration, manifest. */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/text.h"
#include "image/image_bundle.h"
#include "sys/file.h"
#include "sys/tar.h"

enum { MAX_LAYER = 1 << 30, MAX_DOCUMENT = 1 << 16 };

/* --- gzip --- */

typedef int compress_fn(unsigned char *to, unsigned long *n_to, const unsigned char *from,
                        unsigned long n_from, int level);
typedef unsigned long bound_fn(unsigned long n);
typedef unsigned long crc_fn(unsigned long crc, const unsigned char *data, unsigned n);

static void put_le32(unsigned char *to, unsigned long number)
{
    for (int i = 0; i < 4; i++) {
        to[i] = (unsigned char)(number >> (8 * i) & 0xff);
    }
}

/* By zlib, which is loaded as libcurl is; every libcurl needs it. zlib's own format has 2 bytes
 * before the data and a sum of 4 behind them; gzip has 10, and 8. False: there is no zlib. */
static bool gzip(const stk_image_blob *plain, stk_arena *arena, stk_image_blob *ret)
{
    static const unsigned char head[10] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
    /* A quarter of the time of zlib's usual level, and a twentieth more bytes. */
    enum { LEVEL = 2, ZLIB_HEAD = 2, ZLIB_SUM = 4, ENDS = 8 };
    void *so = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (so == NULL) {
        return false;
    }
    compress_fn *compress = (compress_fn *)dlsym(so, "compress2");
    bound_fn *bound = (bound_fn *)dlsym(so, "compressBound");
    crc_fn *crc = (crc_fn *)dlsym(so, "crc32");
    if (compress == NULL || bound == NULL || crc == NULL) {
        return false;
    }
    unsigned long n = bound(plain->len);
    unsigned char *out = stk_arena_alloc(arena, sizeof head + n + ENDS);
    unsigned char *body = out == NULL ? NULL : out + sizeof head - ZLIB_HEAD;
    if (body == NULL || compress(body, &n, plain->data, plain->len, LEVEL) != 0) {
        return false;
    }
    memcpy(out, head, sizeof head);
    unsigned char *end = body + n - ZLIB_SUM;
    put_le32(end, crc(crc(0, NULL, 0), plain->data, (unsigned)plain->len));
    put_le32(end + 4, plain->len);
    ret->data = out;
    ret->len = (size_t)(end + ENDS - out);
    return true;
}

/* --- its documents --- */

static int sum(stk_image_blob *blob, stk_arena *arena, stk_err *err)
{
    char hex[STK_DIGEST_HEX + 1];
    stk_digest_of(blob->data, blob->len, hex);
    blob->digest = stk_arena_printf(arena, "sha256:%s", hex);
    return stk_err_if_null(blob->digest, err);
}

static int keep_document(stk_buf *text, stk_arena *arena, stk_image_blob *ret, stk_err *err)
{
    STK_TRY(stk_buf_check(text, err));
    ret->data = (const unsigned char *)stk_arena_dupn(arena, text->data, text->len);
    ret->len = text->len;
    STK_TRY(stk_err_if_null(ret->data, err));
    return sum(ret, arena, err);
}

static int put_config(const char *const *entrypoint, stk_arena *arena, stk_image_bundle *b,
                      stk_err *err)
{
    static const char then[] = "1970-01-01T00:00:00Z"; /* the same content gives the same bytes */
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_DOCUMENT);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "architecture", stk_image_arch());
    stk_json_put_text(&out, "os", "linux");
    stk_json_put_text(&out, "created", then);
    stk_json_open(&out, "config", '{');
    stk_json_put_texts(&out, "Entrypoint", entrypoint);
    stk_json_open(&out, "Labels", '{');
    stk_json_put_text(&out, "org.opencontainers.image.title", "stoker");
    stk_json_put_text(&out, "org.opencontainers.image.version", STK_VERSION);
    stk_json_close(&out, '}');
    stk_json_close(&out, '}');
    stk_json_open(&out, "rootfs", '{');
    stk_json_put_text(&out, "type", "layers");
    stk_json_open(&out, "diff_ids", '[');
    stk_json_put_text(&out, NULL, b->plain.digest);
    stk_json_close(&out, ']');
    stk_json_close(&out, '}');
    stk_json_open(&out, "history", '[');
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "created", then);
    stk_json_put_text(&out, "created_by", "stoker carry");
    stk_json_close(&out, '}');
    stk_json_close(&out, ']');
    stk_json_close(&out, '}');
    return keep_document(&out, arena, &b->config, err);
}

static void put_blob(stk_buf *out, const char *key, const char *type, const stk_image_blob *blob)
{
    stk_json_open(out, key, '{');
    stk_json_put_text(out, "mediaType", type);
    stk_json_put_text(out, "digest", blob->digest);
    stk_json_put_whole(out, "size", (int64_t)blob->len);
    stk_json_close(out, '}');
}

static int put_manifest(bool is_gzip, stk_arena *arena, stk_image_bundle *b, stk_err *err)
{
    STK_BUF_AUTO out = STK_BUF_INIT(MAX_DOCUMENT);
    stk_json_open(&out, NULL, '{');
    stk_json_put_whole(&out, "schemaVersion", 2);
    stk_json_put_text(&out, "mediaType", STK_IMAGE_MANIFEST);
    put_blob(&out, "config", "application/vnd.oci.image.config.v1+json", &b->config);
    stk_json_open(&out, "layers", '[');
    put_blob(&out, NULL,
             is_gzip ? "application/vnd.oci.image.layer.v1.tar+gzip"
                     : "application/vnd.oci.image.layer.v1.tar",
             &b->layer);
    stk_json_close(&out, ']');
    stk_json_close(&out, '}');
    return keep_document(&out, arena, &b->manifest, err);
}

int stk_image_bundle_make(const char *tar, const char *const *entrypoint, stk_arena *arena,
                          stk_image_bundle *ret, stk_err *err)
{
    STK_TEXT_AUTO data = NULL;
    stk_image_bundle b = {0};
    STK_TRY(stk_file_read(tar, MAX_LAYER, &data, &b.plain.len, err));
    unsigned char *copy = stk_arena_alloc(arena, b.plain.len + 1);
    STK_TRY(stk_err_if_null(copy, err));
    memcpy(copy, data, b.plain.len);
    b.plain.data = copy;
    STK_TRY(sum(&b.plain, arena, err));
    bool is_gzip = gzip(&b.plain, arena, &b.layer);
    if (!is_gzip) {
        b.layer = b.plain;
    }
    STK_TRY(sum(&b.layer, arena, err));
    STK_TRY(put_config(entrypoint, arena, &b, err));
    STK_TRY(put_manifest(is_gzip, arena, &b, err));
    *ret = b;
    return 0;
}

/* --- as one file --- */

static int put_file(const stk_tar *tar, const char *name, const void *data, size_t n, stk_err *err)
{
    STK_TRY(stk_tar_entry(tar, name, NULL, S_IFREG | 0644, (int64_t)n, err));
    STK_TRY(stk_tar_data(tar, data, n, err));
    return stk_tar_pad(tar, (int64_t)n, err);
}

int stk_image_bundle_save(const stk_image_bundle *b, const char *name, const char *path,
                          stk_err *err)
{
    STK_BUF_AUTO list = STK_BUF_INIT(MAX_DOCUMENT);
    stk_json_open(&list, NULL, '[');
    stk_json_open(&list, NULL, '{');
    stk_json_put_text(&list, "Config", "config.json");
    stk_json_open(&list, "RepoTags", '[');
    stk_json_put_text(&list, NULL, name);
    stk_json_close(&list, ']');
    stk_json_open(&list, "Layers", '[');
    stk_json_put_text(&list, NULL, "layer.tar");
    stk_json_close(&list, ']');
    stk_json_close(&list, '}');
    stk_json_close(&list, ']');
    STK_TRY(stk_buf_check(&list, err));
    STK_FD_AUTO fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", path);
    }
    const stk_tar tar = {fd, path, NULL};
    STK_TRY(put_file(&tar, "manifest.json", list.data, list.len, err));
    STK_TRY(put_file(&tar, "config.json", b->config.data, b->config.len, err));
    STK_TRY(put_file(&tar, "layer.tar", b->plain.data, b->plain.len, err));
    return stk_tar_end(&tar, err);
}
