/* Drives a fuzz target without libFuzzer.
 *
 *     fuzz_spec CORPUS…                        every file, once
 *     fuzz_spec --count 2000 CORPUS…           then that many mutations, the same ones each time
 *     fuzz_spec --seconds 60 CORPUS…           or for that long, other ones each time (or
 *                                              STOKER_FUZZ_SECONDS=60, which wins over --count)
 *     fuzz_spec --seed N --count 1 CORPUS…     repeats that mutation: a crash names its seed
 */
#include <dirent.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "fuzz.h"

typedef struct sample {
    uint8_t *data;
    size_t size;
} sample;

typedef struct corpus {
    sample *list;
    size_t n, cap;
} corpus;

static void die(const char *what, const char *name)
{
    (void)fprintf(stderr, "%s: %s\n", what, name);
    exit(2);
}

static void add_file(corpus *c, const char *path)
{
    FILE *file = fopen(path, "rb");
    struct stat st;
    if (file == NULL || fstat(fileno(file), &st) < 0) {
        die("cannot read", path);
    }
    sample one = {.size = (size_t)st.st_size, .data = malloc((size_t)st.st_size + 1)};
    if (one.data == NULL || fread(one.data, 1, one.size, file) != one.size) {
        die("cannot read", path);
    }
    (void)fclose(file);
    if (c->n == c->cap) {
        c->cap = c->cap == 0 ? 64 : c->cap * 2;
        c->list = realloc(c->list, c->cap * sizeof *c->list);
        if (c->list == NULL) {
            die("out of memory", path);
        }
    }
    c->list[c->n++] = one;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Visits folders recursively in the order of names, so that a seed means the same everywhere. */
static void add_path(corpus *c, const char *path, int depth)
{
    struct stat st;
    if (stat(path, &st) < 0 || depth > 8) {
        die("cannot read", path);
    }
    if (!S_ISDIR(st.st_mode)) {
        add_file(c, path);
        return;
    }
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, by_name);
    for (int i = 0; i < n; i++) {
        char child[4096];
        if (entries[i]->d_name[0] != '.') {
            (void)snprintf(child, sizeof child, "%s/%s", path, entries[i]->d_name);
            add_path(c, child, depth + 1);
        }
        free(entries[i]);
    }
    free(entries);
}

/* --- mutations --- */

static uint64_t next(uint64_t *state)
{
    *state += 0x9E3779B97F4A7C15u; /* splitmix64 */
    uint64_t z = *state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

static size_t below(uint64_t *state, size_t n)
{
    return n == 0 ? 0 : (size_t)(next(state) % n);
}

static const char *const tokens[] = {
    "\n",
    ": ",
    "{",
    "}",
    "[",
    "]",
    ",",
    "\"",
    "'",
    "- ",
    "&a ",
    "*a",
    "<<: ",
    "null",
    "true",
    "-1",
    "1e999",
    "0",
    "\\u0000",
    "\\ud83d",
    "\t",
    "  ",
    "#",
    "|\n",
    "!!str ",
    "---\n",
    "../",
    "/",
    ".",
    "99999999999999999999",
    "\"stoker\": 1, ",
    "stoker: 2\n",
    "steps",
    "from: ",
    "value: ",
    "\xC3",
    "\xEF\xBB\xBF",
    "0.5",
    "1GB",
    "resources: ",
    "after: [a]",
    "path",
};

enum { ROOM = 1 << 16 };

static size_t insert(uint8_t *data, size_t size, size_t at, const void *what, size_t n)
{
    if (size + n > ROOM) {
        return size;
    }
    memmove(data + at + n, data + at, size - at);
    memcpy(data + at, what, n);
    return size + n;
}

static size_t mutate_once(const corpus *c, uint8_t *data, size_t size, uint64_t *state)
{
    size_t at = below(state, size + 1);
    size_t n = below(state, size - at + 1);
    const sample *other = &c->list[below(state, c->n)];
    size_t from = below(state, other->size + 1);
    const char *token = tokens[below(state, sizeof tokens / sizeof *tokens)];
    n = n > 64 && below(state, 4) > 0 ? n % 64 : n;
    switch (below(state, 6)) {
    case 0:
        if (at < size) {
            data[at] = (uint8_t)next(state);
        }
        return size;
    case 1:
        if (at < size) {
            data[at] ^= (uint8_t)(1u << below(state, 8));
        }
        return size;
    case 2: /* remove a part */
        memmove(data + at, data + at + n, size - at - n);
        return size - n;
    case 3: /* repeat a part */
        if (size + n <= ROOM) {
            memmove(data + at + n, data + at, size - at); /* the first copy stays at `at` */
            size += n;
        }
        return size;
    case 4:
        return insert(data, size, at, token, strlen(token));
    default: { /* insert a part of another file */
        size_t piece = below(state, other->size - from + 1);
        return insert(data, size, at, other->data + from, piece);
    }
    }
}

static volatile uint64_t seed_now;

/* Called while the process dies of a signal: write(2) only. ASan's own reports come before it. */
static void say_seed(int signal_number)
{
    char text[64];
    size_t n = sizeof text;
    text[--n] = '\n';
    for (uint64_t seed = seed_now; n > 10 && (seed > 0 || n == sizeof text - 1); seed /= 10) {
        text[--n] = (char)('0' + seed % 10);
    }
    if (write(STDERR_FILENO, "--seed ", 7) == 7 &&
        write(STDERR_FILENO, text + n, sizeof text - n)) {
        (void)signal(signal_number, SIG_DFL);
    }
    (void)raise(signal_number);
}

static void mutate(const corpus *c, uint64_t seed)
{
    seed_now = seed;
    static uint8_t data[ROOM];
    uint64_t state = seed;
    const sample *start = &c->list[below(&state, c->n)];
    size_t size = start->size < ROOM / 2 ? start->size : ROOM / 2;
    memcpy(data, start->data, size);
    for (size_t k = 1 + below(&state, 6); k > 0; k--) {
        size = mutate_once(c, data, size, &state);
    }
    /* A copy of the exact size, so that a sanitizer sees a read behind its end. */
    uint8_t *exact = malloc(size == 0 ? 1 : size);
    if (exact == NULL) {
        die("out of memory", "mutation");
    }
    memcpy(exact, data, size);
    (void)LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv)
{
    corpus c = {0};
    const char *env = getenv("STOKER_FUZZ_SECONDS"); /* make fuzz */
    long seconds = env == NULL ? 0 : strtol(env, NULL, 10);
    uint64_t seed = 0;
    uint64_t count = UINT64_MAX;
    for (int i = 1; i < argc; i++) {
        bool more = i + 1 < argc;
        if (strcmp(argv[i], "--seconds") == 0 && more) {
            seconds = strtol(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--seed") == 0 && more) {
            seed = strtoull(argv[++i], NULL, 10);
        } else if (strcmp(argv[i], "--count") == 0 && more) {
            count = strtoull(argv[++i], NULL, 10);
        } else {
            add_path(&c, argv[i], 0);
        }
    }
    if (c.n == 0) {
        die("usage", "TARGET [--seconds N] [--seed N] [--count N] CORPUS…");
    }
    if (seconds > 0) {
        count = UINT64_MAX;
    }
    if (seed == 0) { /* runs by time use other mutations each time */
        seed = seconds > 0 ? (uint64_t)time(NULL) << 20 : 1;
    }
    for (size_t i = 0; i < c.n; i++) {
        (void)LLVMFuzzerTestOneInput(c.list[i].data, c.list[i].size);
    }
    uint64_t done = 0;
    (void)signal(SIGABRT, say_seed); /* fuzz_require, and ASan with abort_on_error=1 */
    time_t end = time(NULL) + seconds;
    for (; done < count && (seconds > 0 ? time(NULL) < end : count != UINT64_MAX); done++) {
        mutate(&c, seed + done);
    }
    printf("%zu files and %llu mutations (seeds %llu…), nothing broke\n", c.n,
           (unsigned long long)done, (unsigned long long)seed);
    for (size_t i = 0; i < c.n; i++) {
        free(c.list[i].data);
    }
    free(c.list);
    return 0;
}
