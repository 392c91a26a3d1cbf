/* For tests: a stand-in for ssh (STOKER_SSH) that runs the command on this machine, and an archive
 * whose program is the test itself with the word --far, so that the real script unpacks and starts
 * it. */
#ifndef STK_LINK_TESTING_H
#define STK_LINK_TESTING_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/link/link.h"
#include "base/digest.h"
#include "base/testing.h"
#include "sys/file.h"
#include "sys/tar.h"

static char link_archive[128], link_digest[STK_DIGEST_HEX + 1];

static inline int link_program(stk_arena *arena, const char **ret_tar, const char **ret_digest,
                               stk_err *err)
{
    (void)arena;
    (void)err;
    *ret_tar = link_archive;
    *ret_digest = link_digest;
    return 0;
}

static inline void link_put_program(const stk_tar *tar, const char *name, const char *text)
{
    int64_t n = (int64_t)strlen(text);
    assert_int_equal(stk_tar_entry(tar, name, NULL, S_IFREG | 0755, n, NULL), 0);
    assert_int_equal(stk_tar_data(tar, text, (size_t)n, NULL), 0);
    assert_int_equal(stk_tar_pad(tar, n, NULL), 0);
}

/* `loader`: what starts as ld.so there. */
static inline void link_make_archive(const char *folder, const char *loader)
{
    unsigned char sum[STK_DIGEST_BYTES];
    stk_sha256 sha;
    stk_sha256_init(&sha);
    (void)snprintf(link_archive, sizeof link_archive, "%s/program.tar", folder);
    FILE *f = fopen(link_archive, "we");
    assert_non_null(f);
    const stk_tar tar = {fileno(f), link_archive, &sha};
    assert_int_equal(stk_tar_entry(&tar, "bin", NULL, S_IFDIR | 0755, 0, NULL), 0);
    link_put_program(&tar, "bin/ld.so", loader);
    link_put_program(&tar, "bin/stoker", "");
    assert_int_equal(stk_tar_end(&tar, NULL), 0);
    (void)fclose(f);
    stk_sha256_done(&sha, sum);
    stk_digest_hex(sum, link_digest);
}

/* Each start of ssh adds two bytes to the file `started`. */
static inline int link_set_up(const char *folder)
{
    static const char ssh[] = "#!/bin/sh\n"
                              "for word; do test \"$word\" != -G || exit 0; done\n"
                              "echo x >> \"$LINK_TEST/started\"\n"
                              "exec /bin/sh -c \"$word\"\n";
    char self[256] = "", path[256];
    if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) {
        return -1;
    }
    (void)snprintf(path, sizeof path, "%s/ssh", folder);
    assert_int_equal(stk_file_write(path, ssh, strlen(ssh), 0755, NULL), 0);
    (void)setenv("LINK_TEST", folder, 1);
    (void)setenv("LINK_SELF", self, 1);
    (void)setenv("STOKER_SSH", path, 1);
    (void)snprintf(path, sizeof path, "%s/cache", folder);
    (void)setenv("XDG_CACHE_HOME", path, 1);
    link_make_archive(folder, "#!/bin/sh\nexec \"$LINK_SELF\" --far\n");
    stk_link_set_program(link_program);
    return 0;
}

#endif
