/* json_cost: what reading and writing JSON costs, by our own reader and writer (base/json.h) and by
 * the libraries that stand here when this is built (decision 0012).
 *
 *     json_cost LIBRARY      prints one line of JSON of it; without a word: what can be said
 *
 * A large document is a spec of 100,000 steps, a small one the event of a step that succeeded, as
 * the engine writes them. Prints MB read in a second, microseconds to read a small one and to ask
 * it for eight members, MB written in a second, and the bytes that the large one takes in memory
 * beside its text (by the peak of the process: one library a process). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/json.h"
#ifdef HAVE_JANSSON
#include <jansson.h>
#endif
#ifdef HAVE_CJSON
#include <cjson/cJSON.h>
#endif
#ifdef HAVE_YYJSON
#include <yyjson.h>
#endif

enum { STEPS = 100000, SMALL = 50000, ROUNDS = 5, MEMBERS = 8 };

static const char event[] =
    "{\"final\":true,\"used\":{\"cpu_s\":1.204,\"wall_s\":1.31,\"peak_memory_bytes\":183500800,"
    "\"read_bytes\":40960,\"write_bytes\":8192},\"outputs\":{\"model\":{\"digest\":"
    "\"9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08\",\"size\":1048576,"
    "\"format\":\"pickle\",\"type\":\"sklearn.linear_model.LogisticRegression\",\"meta\":{}},"
    "\"accuracy\":{\"digest\":\"b5bb9d8014a0f9b1d61e21e796d78dccdf1352f23cd32812f4850b878ae4944c\","
    "\"size\":18,\"format\":\"json\",\"type\":\"float\",\"value\":0.9666666666666667}},"
    "\"metadata\":{\"rows\":150,\"seed\":42},\"warnings\":[]}";
static const char *const members[MEMBERS] = {"final",    "used", "outputs", "metadata",
                                             "warnings", "text", "class",   "ranks"};

/* A way to read and to write: the document, its release, its text, one of its members. */
typedef struct way {
    const char *name;
    void *(*read)(const char *text, size_t n);
    void (*drop)(void *doc);
    char *(*write)(const void *doc);
    const void *(*get)(const void *doc, const char *key);
} way;

typedef struct own {
    stk_arena *arena;
    const stk_json *root;
} own;

static void *own_read(const char *text, size_t n)
{
    own *doc = malloc(sizeof *doc);
    if (doc != NULL) {
        doc->arena = stk_arena_new(0);
        doc->root = stk_json_readn(doc->arena, text, n);
    }
    return doc;
}

static void own_drop(void *doc)
{
    stk_arena_free(((own *)doc)->arena);
    free(doc);
}

static char *own_write(const void *doc)
{
    stk_buf out = STK_BUF_INIT(1u << 30);
    stk_json_dump(((const own *)doc)->root, &out);
    return out.data;
}

static const void *own_get(const void *doc, const char *key)
{
    return stk_json_get(((const own *)doc)->root, key);
}

#ifdef HAVE_JANSSON
static void *jansson_read(const char *text, size_t n)
{
    return json_loadb(text, n, JSON_ALLOW_NUL, NULL);
}

static void jansson_drop(void *doc)
{
    json_decref(doc);
}

static char *jansson_write(const void *doc)
{
    return json_dumps(doc, JSON_COMPACT);
}

static const void *jansson_get(const void *doc, const char *key)
{
    return json_object_get(doc, key);
}
#endif

#ifdef HAVE_CJSON
static void *cjson_read(const char *text, size_t n)
{
    return cJSON_ParseWithLength(text, n);
}

static void cjson_drop(void *doc)
{
    cJSON_Delete(doc);
}

static char *cjson_write(const void *doc)
{
    return cJSON_PrintUnformatted(doc);
}

static const void *cjson_get(const void *doc, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(doc, key);
}
#endif

#ifdef HAVE_YYJSON
static void *yyjson_load(const char *text, size_t n)
{
    return yyjson_read(text, n, 0);
}

static void yyjson_drop(void *doc)
{
    yyjson_doc_free(doc);
}

static char *yyjson_text(const void *doc)
{
    return yyjson_write(doc, 0, NULL);
}

static const void *yyjson_get(const void *doc, const char *key)
{
    return yyjson_obj_get(yyjson_doc_get_root((yyjson_doc *)(uintptr_t)doc), key);
}
#endif

static const way ways[] = {
    {"own", own_read, own_drop, own_write, own_get},
#ifdef HAVE_JANSSON
    {"jansson", jansson_read, jansson_drop, jansson_write, jansson_get},
#endif
#ifdef HAVE_CJSON
    {"cjson", cjson_read, cjson_drop, cjson_write, cjson_get},
#endif
#ifdef HAVE_YYJSON
    {"yyjson", yyjson_load, yyjson_drop, yyjson_text, yyjson_get},
#endif
};
enum { N = sizeof ways / sizeof *ways };

static double now_s(void)
{
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double peak_bytes(void)
{
    struct rusage usage;
    (void)getrusage(RUSAGE_SELF, &usage);
    return (double)usage.ru_maxrss * 1024;
}

static void make_spec(stk_buf *out)
{
    char name[32], from[32];
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "name", "wide");
    stk_json_open(out, "steps", '{');
    for (int i = 0; i < STEPS; i++) {
        (void)snprintf(name, sizeof name, "train_%d", i);
        (void)snprintf(from, sizeof from, "train_%d.model", i - 1);
        stk_json_open(out, name, '{');
        stk_json_put_texts(out, "command", (const char *const[]){"python", "train.py", name, NULL});
        stk_json_open(out, "inputs", '{');
        stk_json_put_whole(out, "fold", i);
        stk_json_put_real(out, "rate", i / 7.0);
        stk_json_put_text(out, "model", i > 0 ? from : "none");
        stk_json_close(out, '}');
        stk_json_put_texts(out, "outputs", (const char *const[]){"model", "accuracy", NULL});
        stk_json_put_bool(out, "cache", true);
        stk_json_close(out, '}');
    }
    stk_json_close(out, '}');
    stk_json_close(out, '}');
}

static void *must_read(const way *w, const char *text, size_t n)
{
    void *doc = w->read(text, n);
    if (doc == NULL || w->get(doc, n > sizeof event ? "steps" : "used") == NULL) {
        (void)fprintf(stderr, "json_cost: %s read nothing\n", w->name);
        exit(3);
    }
    return doc;
}

/* The best of a few rounds: what others do on this machine only ever adds to it. */
static void measure(const way *w)
{
    stk_buf spec = STK_BUF_INIT(1u << 30);
    make_spec(&spec);
    double mb = (double)spec.len / 1e6, read = 1e9, write = 1e9, small = 1e9, before = peak_bytes();
    void *doc = must_read(w, spec.data, spec.len);
    double peak = peak_bytes() - before;
    for (int i = 0; i < ROUNDS; i++) {
        double begin = now_s();
        char *text = w->write(doc);
        double took = now_s() - begin;
        write = took < write ? took : write;
        free(text);
        w->drop(doc);
        begin = now_s();
        doc = must_read(w, spec.data, spec.len);
        took = now_s() - begin;
        read = took < read ? took : read;
        begin = now_s();
        for (int k = 0; k < SMALL; k++) {
            void *one = must_read(w, event, sizeof event - 1);
            for (int m = 0; m < MEMBERS; m++) {
                (void)w->get(one, members[m]);
            }
            w->drop(one);
        }
        took = now_s() - begin;
        small = took < small ? took : small;
    }
    w->drop(doc);
    stk_buf out = STK_BUF_INIT(1u << 16);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "library", w->name);
    stk_json_put_real(&out, "read_mb_s", mb / read);
    stk_json_put_real(&out, "small_us", small / SMALL * 1e6);
    stk_json_put_real(&out, "write_mb_s", mb / write);
    stk_json_put_real(&out, "memory_per_byte", peak / (double)spec.len);
    stk_json_close(&out, '}');
    (void)puts(out.data);
    stk_buf_done(&out);
    stk_buf_done(&spec);
}

int main(int argc, char **argv)
{
    for (size_t i = 0; i < N; i++) {
        if (argc == 2 && strcmp(argv[1], ways[i].name) == 0) {
            measure(&ways[i]);
            return 0;
        }
    }
    (void)fputs("json_cost: say one of:", stderr);
    for (size_t i = 0; i < N; i++) {
        (void)fprintf(stderr, " %s", ways[i].name);
    }
    (void)fputs("\n(others are not on this machine: libjansson-dev, libcjson-dev, libyyjson-dev)\n",
                stderr);
    return 2;
}
