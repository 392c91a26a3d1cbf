/* The artifact digest: SHA-256 over the SHA-256 of 16 MiB chunks, hashed on several threads. */
#include "store/store_digest.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "store/store.h"
#include "sys/file.h"

enum {
    READ_BYTES = 256 * 1024, /* stays in the second-level cache between pread and hashing */
    MAX_THREADS = 16,
    THREAD_STACK = 128 * 1024,
    ALONE_BYTES = 4 << 20, /* less than this is quicker on one thread */
};

typedef struct job {
    const stk_tree *tree;
    unsigned char (*chunks)[STK_DIGEST_BYTES];
    atomic_ullong next;
    atomic_int sys;          /* first failure */
    _Atomic size_t i_failed; /* its file */
} job;

typedef struct worker {
    job *job;
    size_t i_file; /* the open one */
    int fd;
    unsigned char *buf;
} worker;

static size_t file_of_chunk(const stk_tree *tree, uint64_t chunk)
{
    size_t low = 0;
    size_t high = tree->n; /* the last entry that begins at or before it; folders have no chunk */
    while (high - low > 1) {
        size_t mid = low + (high - low) / 2;
        if (tree->files[mid].first_chunk <= chunk) {
            low = mid;
        } else {
            high = mid;
        }
    }
    return low;
}

static int open_file(worker *w, size_t i)
{
    const stk_tree *tree = w->job->tree;
    const stk_tree_file *f = &tree->files[i];
    stk_file_close(&w->fd);
    STK_TEXT_AUTO path = f->path[0] ? stk_file_join(tree->root, f->path) : strdup(tree->root);
    if (path == NULL) {
        return ENOMEM;
    }
    w->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (w->fd < 0 || fstat(w->fd, &st) < 0) {
        return errno;
    }
    w->i_file = i;
    return S_ISREG(st.st_mode) && st.st_size == f->size ? 0 : ESTALE;
}

static int hash_chunk(worker *w, uint64_t chunk)
{
    const stk_tree *tree = w->job->tree;
    size_t i = file_of_chunk(tree, chunk);
    int sys = w->fd >= 0 && w->i_file == i ? 0 : open_file(w, i);
    if (sys != 0) {
        w->i_file = i;
        return sys;
    }
    int64_t at = (int64_t)(chunk - tree->files[i].first_chunk) * STK_DIGEST_CHUNK;
    int64_t end =
        at + STK_DIGEST_CHUNK < tree->files[i].size ? at + STK_DIGEST_CHUNK : tree->files[i].size;
    stk_sha256 sha;
    stk_sha256_init(&sha);
    while (at < end) {
        size_t want = end - at < READ_BYTES ? (size_t)(end - at) : READ_BYTES;
        ssize_t n = pread(w->fd, w->buf, want, at);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return n == 0 ? ESTALE : errno;
        }
        stk_sha256_add(&sha, w->buf, (size_t)n);
        at += n;
    }
    stk_sha256_done(&sha, w->job->chunks[chunk]);
    return 0;
}

static void *work(void *arg)
{
    job *j = arg;
    worker w = {.job = j, .fd = -1, .buf = malloc(READ_BYTES)};
    int sys = w.buf == NULL ? ENOMEM : 0;
    while (sys == 0 && atomic_load(&j->sys) == 0) {
        uint64_t chunk = atomic_fetch_add(&j->next, 1);
        if (chunk >= j->tree->n_chunks) {
            break;
        }
        sys = hash_chunk(&w, chunk);
    }
    int none = 0;
    if (sys != 0 && atomic_compare_exchange_strong(&j->sys, &none, sys)) {
        atomic_store(&j->i_failed, w.i_file);
    }
    stk_file_close(&w.fd);
    free(w.buf);
    return NULL;
}

static unsigned n_threads(const stk_tree *tree)
{
    cpu_set_t cpus;
    int n = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    if (tree->size < ALONE_BYTES && tree->n_chunks < 64) {
        return 1;
    }
    n = n > MAX_THREADS ? MAX_THREADS : n;
    return tree->n_chunks < (uint64_t)n ? (unsigned)tree->n_chunks : (unsigned)n;
}

/* The caller works too; fewer threads than wanted is not an error. */
static void run_job(job *j)
{
    pthread_t threads[MAX_THREADS];
    unsigned n = 0;
    unsigned want = n_threads(j->tree) - 1;
    pthread_attr_t attr;
    sigset_t all;
    sigset_t old;
    if (want > 0 && pthread_attr_init(&attr) == 0) {
        (void)pthread_attr_setstacksize(&attr, THREAD_STACK);
        (void)sigfillset(&all); /* signals are for the engine's own thread */
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        while (n < want && pthread_create(&threads[n], &attr, work, j) == 0) {
            n++;
        }
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        (void)pthread_attr_destroy(&attr);
    }
    (void)work(j);
    while (n > 0) {
        (void)pthread_join(threads[--n], NULL);
    }
}

static void hash_of_chunks(const unsigned char *chunks, uint64_t n, char *ret_hex)
{
    stk_digest_of(chunks, (size_t)n * STK_DIGEST_BYTES, ret_hex);
}

void stk_tree_digest_bytes(const void *data, size_t len, char ret_hex[STK_DIGEST_HEX + 1])
{
    const char *p = data;
    stk_sha256 outer;
    unsigned char digest[STK_DIGEST_BYTES];
    stk_sha256_init(&outer);
    do {
        size_t n = len < (size_t)STK_DIGEST_CHUNK ? len : (size_t)STK_DIGEST_CHUNK;
        stk_sha256 inner;
        stk_sha256_init(&inner);
        stk_sha256_add(&inner, p, n);
        stk_sha256_done(&inner, digest);
        stk_sha256_add(&outer, digest, sizeof digest);
        p += n;
        len -= n;
    } while (len > 0);
    stk_sha256_done(&outer, digest);
    stk_digest_hex(digest, ret_hex);
}

static uint64_t n_chunks_of(const stk_tree *tree, size_t i)
{
    uint64_t end = i + 1 < tree->n ? tree->files[i + 1].first_chunk : tree->n_chunks;
    return end - tree->files[i].first_chunk;
}

/* The text that stands for a folder. */
static int list_of(const stk_tree *tree, unsigned char (*chunks)[STK_DIGEST_BYTES], stk_buf *text)
{
    stk_buf_text(text, "stoker-tree-1\n");
    for (size_t i = 0; i < tree->n; i++) {
        const stk_tree_file *f = &tree->files[i];
        if (!f->is_dir) {
            char hex[STK_DIGEST_HEX + 1];
            hash_of_chunks(chunks[f->first_chunk], n_chunks_of(tree, i), hex);
            stk_buf_printf(text, "%s %lld %s\n", hex, (long long)f->size, f->path);
        }
    }
    return text->failed ? -1 : 0;
}

int stk_tree_digest(const stk_tree *tree, char ret_hex[STK_DIGEST_HEX + 1], stk_err *err)
{
    job j = {.tree = tree};
    STK_BUF_AUTO text = STK_BUF_INIT(SIZE_MAX / 2);
    j.chunks = calloc(tree->n_chunks + 1, STK_DIGEST_BYTES);
    int rc = 0;
    if (j.chunks == NULL) {
        return stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't hash '%s'", tree->root);
    }
    run_job(&j);
    int sys = atomic_load(&j.sys);
    if (sys != 0) {
        const char *path = tree->n == 0 ? "" : tree->files[atomic_load(&j.i_failed)].path;
        rc = sys == ESTALE
                 ? stk_err_set(err, STK_E_STORE, "'%s%s%s' changed while it was being hashed",
                               tree->root, path[0] ? "/" : "", path)
                 : stk_err_sys(err, STK_E_SYS, sys, "can't read '%s%s%s'", tree->root,
                               path[0] ? "/" : "", path);
    } else if (!tree->is_dir) {
        hash_of_chunks(j.chunks[0], tree->n_chunks, ret_hex);
    } else if (list_of(tree, j.chunks, &text) < 0) {
        rc = stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't hash '%s'", tree->root);
    } else {
        stk_tree_digest_bytes(text.data, text.len, ret_hex);
    }
    free(j.chunks);
    return rc;
}

int stk_store_digest_path(const char *path, char ret_hex[STK_DIGEST_HEX + 1], int64_t *ret_size,
                          stk_err *err)
{
    STK_TREE_AUTO tree = {0};
    int rc = stk_tree_walk(path, false, &tree, err);
    if (rc == 0) {
        rc = stk_tree_digest(&tree, ret_hex, err);
    }
    if (rc == 0 && ret_size != NULL) {
        *ret_size = tree.size;
    }
    return rc;
}
