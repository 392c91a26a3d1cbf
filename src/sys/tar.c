#include "sys/tar.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "sys/file.h"

enum { BLOCK = 512, NAME = 100 };

int stk_tar_data(const stk_tar *tar, const void *data, size_t n, stk_err *err)
{
    if (stk_file_write_all(tar->fd, data, n) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "writing %s", tar->name);
    }
    if (tar->sha != NULL) {
        stk_sha256_add(tar->sha, data, n);
    }
    return 0;
}

int stk_tar_pad(const stk_tar *tar, int64_t size, stk_err *err)
{
    static const char zeros[BLOCK];
    return stk_tar_data(tar, zeros, (size_t)((BLOCK - size % BLOCK) % BLOCK), err);
}

int stk_tar_end(const stk_tar *tar, stk_err *err)
{
    static const char end[2 * BLOCK];
    return stk_tar_data(tar, end, sizeof end, err);
}

static void put_octal(char *field, size_t size, int64_t number)
{
    (void)snprintf(field, size, "%0*llo", (int)size - 1, (unsigned long long)number);
}

static int put_header(const stk_tar *tar, const char *name, const char *target, mode_t mode,
                      char type, int64_t size, stk_err *err)
{
    char h[BLOCK] = {0};
    (void)snprintf(h, NAME + 1, "%s", name);
    put_octal(h + 100, 8, mode & 07777);
    put_octal(h + 108, 8, 0);
    put_octal(h + 116, 8, 0);
    if (size < 1ll << 33) {
        put_octal(h + 124, 12, size);
    } else { /* in binary */
        h[124] = (char)0x80;
        for (int i = 0; i < 8; i++) {
            h[135 - i] = (char)(size >> (8 * i) & 0xff);
        }
    }
    put_octal(h + 136, 12, 0);
    memset(h + 148, ' ', 8);
    h[156] = type;
    (void)snprintf(h + 157, NAME + 1, "%s", stk_text_or(target, ""));
    memcpy(h + 257, "ustar  ", 8);
    unsigned sum = 0;
    for (int i = 0; i < BLOCK; i++) {
        sum += (unsigned char)h[i];
    }
    (void)snprintf(h + 148, 8, "%06o", sum);
    return stk_tar_data(tar, h, BLOCK, err);
}

/* A longer name stands before its entry, as the content of an entry of its own. */
static int put_long_name(const stk_tar *tar, const char *text, char type, stk_err *err)
{
    size_t n = strlen(stk_text_or(text, "")) + 1;
    if (n <= NAME + 1) {
        return 0;
    }
    STK_TRY(put_header(tar, "././@LongLink", NULL, 0644, type, (int64_t)n, err));
    STK_TRY(stk_tar_data(tar, text, n, err));
    return stk_tar_pad(tar, (int64_t)n, err);
}

int stk_tar_entry(const stk_tar *tar, const char *name, const char *target, mode_t mode,
                  int64_t size, stk_err *err)
{
    char type = '0';
    if (S_ISDIR(mode)) {
        type = '5';
    } else if (S_ISLNK(mode)) {
        type = '2';
    }
    STK_TRY(put_long_name(tar, name, 'L', err));
    STK_TRY(put_long_name(tar, target, 'K', err));
    return put_header(tar, name, target, mode, type, size, err);
}
