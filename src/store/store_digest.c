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
#include <sys/param.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/failpoint.h"
#include "base/text.h"
#include "base/turn.h"
#include "store/store.h"
#include "sys/faults.h"
#include "sys/file.h"

enum {
    READ_BYTES =
        128 * 1024, /* two buffers stay in the second-level cache between pread and hashing */
    MAX_THREADS = 16,
    THREAD_STACK = 128 * 1024,
    ALONE_BYTES = 4 << 20, /* smaller content is quicker on one thread */
};

typedef struct job {
    const stk_tree *tree;
    unsigned char (*chunks)[STK_DIGEST_BYTES];
    atomic_ullong next;
    atomic_int sys;          /* first failure */
    _Atomic size_t i_failed; /* index of its file */
} job;

/* One of the two chunks that a thread sums at once. */
typedef struct lane {
    size_t i_file; /* the open file */
    int fd;
    bool is_sparse;  /* the open file has fewer blocks than bytes */
    int64_t n_zeros; /* not 0: the chunk is a hole of this many bytes */
    int64_t at;
    int64_t end;
    stk_sha256 sha;
    unsigned char *buf;
} lane;

typedef struct worker {
    job *job;
    lane lanes[2]; /* even chunks always use the same one */
} worker;

static size_t file_of_chunk(const stk_tree *tree, uint64_t chunk)
{
    size_t low = 0;
    size_t high =
        tree->n; /* finds the last entry that begins at or before it; folders have no chunk */
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

static int open_file(const job *j, lane *l, size_t i)
{
    const stk_tree_file *f = &j->tree->files[i];
    const char *root = j->tree->root;
    l->i_file = i;
    stk_file_close(&l->fd);
    STK_TEXT_AUTO path = stk_file_join_any(root, f->path);
    if (path == NULL) {
        return ENOMEM;
    }
    l->fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (l->fd < 0 || fstat(l->fd, &st) < 0) {
        return errno;
    }
    l->is_sparse = st.st_blocks * 512 < st.st_size;
    if (j->tree->is_cold) {
        (void)posix_fadvise(l->fd, 0, 0, POSIX_FADV_DONTNEED);
    }
    if (!S_ISREG(st.st_mode) || st.st_size != f->size) {
        return ESTALE;
    }
    return 0;
}

/* False also if the file system can't tell. */
static bool is_hole(const lane *l)
{
    off_t data = lseek(l->fd, (off_t)l->at, SEEK_DATA);
    return data < 0 ? errno == ENXIO : data >= l->end;
}

static int begin_chunk(const job *j, lane *l, uint64_t chunk)
{
    size_t i = file_of_chunk(j->tree, chunk);
    const stk_tree_file *f = &j->tree->files[i];
    int sys = 0;
    if (l->fd < 0 || l->i_file != i) {
        sys = open_file(j, l, i);
    }
    l->at = (int64_t)(chunk - f->first_chunk) * STK_DIGEST_CHUNK;
    l->end = MIN(l->at + STK_DIGEST_CHUNK, f->size);
    l->n_zeros = 0;
    stk_sha256_init(&l->sha);
    if (sys == 0 && l->is_sparse && is_hole(l)) {
        l->n_zeros = l->end - l->at;
        l->at = l->end;
    }
    return sys;
}

/* --- holes --- */

static unsigned char zero_chunk[STK_DIGEST_BYTES]; /* the digest of a whole chunk of zeros */
static pthread_once_t zero_once = PTHREAD_ONCE_INIT;

static void sum_zeros(int64_t n, unsigned char ret[STK_DIGEST_BYTES])
{
    static const unsigned char zeros[16384];
    stk_sha256 sha;
    stk_sha256_init(&sha);
    STK_TURN(n);
    for (; n > 0; n -= (int64_t)sizeof zeros) {
        stk_sha256_add(&sha, zeros, (size_t)MIN(n, (int64_t)sizeof zeros));
    }
    stk_sha256_done(&sha, ret);
}

static void sum_zero_chunk(void)
{
    sum_zeros(STK_DIGEST_CHUNK, zero_chunk);
}

static void end_chunk(lane *l, unsigned char ret[STK_DIGEST_BYTES])
{
    if (l->n_zeros == STK_DIGEST_CHUNK) {
        (void)pthread_once(&zero_once, sum_zero_chunk);
        memcpy(ret, zero_chunk, sizeof zero_chunk);
    } else if (l->n_zeros > 0) {
        sum_zeros(l->n_zeros, ret);
    } else {
        stk_sha256_done(&l->sha, ret);
    }
}

/* --- reading --- */

/* Reads the next READ_BYTES of the chunk, or up to its end. */
static int read_some(lane *l, size_t *ret_n)
{
    size_t want = (size_t)MIN(l->end - l->at, READ_BYTES);
    for (*ret_n = 0; *ret_n < want;) {
        ssize_t n = pread(l->fd, l->buf + *ret_n, want - *ret_n, l->at + (int64_t)*ret_n);
        if (n <= 0 && !(n < 0 && errno == EINTR)) {
            return n == 0 ? ESTALE : errno;
        }
        if (n >= 0) {
            *ret_n += (size_t)n;
        }
    }
    l->at += (int64_t)want;
    return 0;
}

/* Sums both chunks, in parallel while both last. *ret_lane: the one that failed. */
static int hash_lanes(const job *j, lane *a, lane *b, lane **ret_lane)
{
    while (a->at < a->end || b->at < b->end) {
        size_t n_a;
        size_t n_b;
        if (stk_tree_is_stopped(j->tree)) {
            return ECANCELED;
        }
        int sys = read_some(*ret_lane = a, &n_a);
        if (sys == 0) {
            sys = read_some(*ret_lane = b, &n_b);
        }
        if (sys != 0) {
            return sys;
        }
        size_t both = MIN(n_a, n_b);
        stk_sha256_add_pair(&a->sha, a->buf, &b->sha, b->buf, both);
        stk_sha256_add(&a->sha, a->buf + both, n_a - both);
        stk_sha256_add(&b->sha, b->buf + both, n_b - both);
        STK_TURN((int64_t)(n_a + n_b));
    }
    return 0;
}

/* Sums chunk `first` and, if there is one, the next. */
static int hash_pair(worker *w, uint64_t first, size_t *ret_i_file)
{
    job *j = w->job;
    lane *a = &w->lanes[0];
    lane *b = &w->lanes[1];
    lane *l = a;
    bool two = first + 1 < j->tree->n_chunks;
    int sys = begin_chunk(j, a, first);
    if (sys == 0 && two) {
        l = b;
        sys = begin_chunk(j, b, first + 1);
    } else {
        b->at = b->end;
    }
    if (sys == 0) {
        sys = hash_lanes(j, a, b, &l);
    }
    *ret_i_file = l->i_file;
    if (sys == 0) {
        end_chunk(a, j->chunks[first]);
    }
    if (sys == 0 && two) {
        end_chunk(b, j->chunks[first + 1]);
    }
    return sys;
}

static void fail_job(job *j, int sys, size_t i_file)
{
    int none = 0;
    if (atomic_compare_exchange_strong(&j->sys, &none, sys)) {
        atomic_store(&j->i_failed, i_file);
    }
}

/* Slows down to two chunks in about half a second, but notices a stop within milliseconds. */
static void pause_calmly(const stk_tree *tree)
{
    for (int ms = 0; ms < 500 && !stk_tree_is_stopped(tree); ms += 10) {
        (void)usleep(10000);
    }
}

static void *hash_chunks(void *arg)
{
    job *j = arg;
    unsigned char *buf = malloc(2 * (size_t)READ_BYTES);
    worker w = {.job = j, .lanes = {{.fd = -1, .buf = buf}, {.fd = -1, .buf = buf + READ_BYTES}}};
    size_t i_file = 0;
    int sys = buf == NULL ? ENOMEM : 0;
    while (sys == 0 && atomic_load(&j->sys) == 0) {
        uint64_t first = atomic_fetch_add(&j->next, 2);
        uint64_t end = MIN(first + 2, j->tree->n_chunks);
        if (first >= end) {
            break;
        }
        if (j->tree->is_calm && first > 0) {
            pause_calmly(j->tree);
        }
        STK_FAILPOINT("store.sum.mid");
        while (STK_FAILPOINT_IS_HELD("store.sum.mid") && !stk_tree_is_stopped(j->tree)) {
            (void)usleep(1000);
        }
        if (stk_tree_is_stopped(j->tree)) {
            sys = ECANCELED;
            break;
        }
        sys = hash_pair(&w, first, &i_file);
    }
    if (sys != 0) {
        fail_job(j, sys, i_file);
    }
    for (size_t i = 0; i < 2; i++) {
        stk_file_close(&w.lanes[i].fd);
    }
    free(buf);
    return NULL;
}

static unsigned n_threads(const stk_tree *tree)
{
    cpu_set_t cpus;
    if (tree->is_calm) {
        return 1;
    }
    int n = 1;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0) {
        n = CPU_COUNT(&cpus);
    }
    if (tree->size < ALONE_BYTES && tree->n_chunks < 64) {
        return 1;
    }
    n = MIN(n, MAX_THREADS);
    return (unsigned)MIN(tree->n_chunks, (uint64_t)n);
}

/* The caller works too; getting fewer threads than wanted is not an error. */
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
        (void)sigfillset(&all); /* signals go to the engine's thread */
        (void)pthread_sigmask(SIG_SETMASK, &all, &old);
        while (n < want && pthread_create(&threads[n], &attr, hash_chunks, j) == 0) {
            n++;
        }
        (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
        (void)pthread_attr_destroy(&attr);
    }
    (void)hash_chunks(j);
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
        size_t n = MIN(len, (size_t)STK_DIGEST_CHUNK);
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

/* Writes the text whose digest is a folder's digest. */
static int list_parts(const stk_tree *tree, unsigned char (*chunks)[STK_DIGEST_BYTES],
                      stk_buf *text)
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
        const char *path = "";
        if (tree->n != 0) {
            path = tree->files[atomic_load(&j.i_failed)].path;
        }
        STK_TEXT_AUTO joined = stk_file_join_any(tree->root, path);
        const char *which = stk_text_or(joined, tree->root);
        if (sys == ECANCELED) {
            rc = stk_tree_stopped(tree, err);
        } else if (sys == ESTALE) {
            rc = stk_err_set(err, STK_E_STORE, "'%s' changed while it was being hashed", which);
        } else {
            rc = stk_err_sys(err, STK_E_SYS, sys, "can't read '%s'", which);
        }
    } else if (!tree->is_dir) {
        hash_of_chunks(j.chunks[0], tree->n_chunks, ret_hex);
    } else if (list_parts(tree, j.chunks, &text) < 0) {
        rc = stk_err_sys(err, STK_E_NOMEM, ENOMEM, "can't hash '%s'", tree->root);
    } else {
        stk_tree_digest_bytes(text.data, text.len, ret_hex);
    }
    free(j.chunks);
    return rc;
}

int stk_tree_digest_until(const char *path, const atomic_bool *stop,
                          char ret_hex[STK_DIGEST_HEX + 1], stk_err *err)
{
    STK_TREE_AUTO tree = {0};
    STK_TRY(stk_tree_walk_until(path, false, stop, &tree, err));
    return stk_tree_digest(&tree, ret_hex, err);
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
