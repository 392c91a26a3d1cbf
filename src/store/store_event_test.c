/* The event codec: the store can read each event that it accepts, and refuses the others. */
#include <math.h>
#include <sqlite3.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "store/store_testing.h"

enum { ROUNDS = 400, DEPTH = 4, MEMBERS = 5 };

static uint64_t seed;

static uint64_t next(uint64_t n)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return n == 0 ? seed : seed % n;
}

static uint64_t begin_random(void)
{
    const char *given = getenv("STOKER_TEST_SEED");
    uint64_t first =
        given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 20;
    print_message("seed %llu\n", (unsigned long long)first);
    seed = first | 1;
    return first;
}

/* Text of any bytes but NUL; now and then it isn't UTF-8. */
static void random_text(char *buf, size_t size)
{
    static const char *const parts[] = {
        "a",  "\"",         "\\", "\n", "\x01", "\x7f",         "ü",    "\xe2\x80\xa8",
        "日", "\U0001F600", "/",  "</", "\xff", "\xed\xa0\x80", "\xc3", "\t"};
    size_t len = 0;
    uint64_t n_parts = next(40) == 0 ? 16 : 12; /* rarely parts that aren't UTF-8 */
    for (uint64_t n = next(12); n > 0 && len + 8 < size; n--) {
        const char *part = parts[next(n_parts)];
        memcpy(buf + len, part, strlen(part));
        len += strlen(part);
    }
    buf[len] = '\0';
}

static void random_value(stk_buf *out, int depth)
{
    char text[128];
    double real = 0;
    uint64_t n = next(MEMBERS);
    uint64_t kind = next(depth < DEPTH ? 8 : 6);
    switch (kind) {
    case 0:
        stk_buf_text(out, next(2) ? "true" : "null");
        break;
    case 1:
        stk_buf_printf(out, "%lld", (long long)next(0));
        break;
    case 2: /* at the edge of what 64 bits hold, and rarely beyond it */
        stk_buf_printf(out, "%s922337203685477580%c", next(2) ? "-" : "", next(30) ? '7' : '9');
        break;
    case 3:
        do {
            uint64_t bits = next(0);
            memcpy(&real, &bits, sizeof real);
        } while (!isfinite(real));
        stk_json_format_real(real, text);
        stk_buf_text(out, text);
        break;
    case 4:
    case 5:
        random_text(text, sizeof text);
        stk_buf_json(out, text);
        break;
    default:
        stk_buf_char(out, kind == 6 ? '[' : '{');
        for (uint64_t i = 0; i < n; i++) {
            stk_buf_printf(out, i > 0 ? "," : "");
            if (kind == 7) {
                stk_buf_printf(out, "\"k%llu\":", (unsigned long long)i);
            }
            random_value(out, depth + 1);
        }
        stk_buf_char(out, kind == 6 ? ']' : '}');
    }
}

typedef struct wanted {
    const char *data;
    stk_event_kind kind;
    int64_t time_ms;
    uint32_t task, attempt, n;
} wanted;

static int compare(void *arg, const stk_event_row *row)
{
    wanted *w = arg;
    w->n++;
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, row->data);
    bool same = strcmp(row->data, w->data) == 0 && row->kind == w->kind && row->task == w->task &&
                row->attempt == w->attempt && row->time_ms == w->time_ms && stk_json_is_map(doc);
    return same ? 0 : -1;
}

static void test_round_trip(void **state)
{
    fixture *f = *state;
    uint64_t first = begin_random();
    unsigned n_kept = 0;
    unsigned n_refused = 0;
    const char *run = new_run(f, NULL, "p", 0);
    int64_t after = 0;
    for (int i = 0; i < ROUNDS; i++) {
        STK_BUF_AUTO data = STK_BUF_INIT(1u << 20);
        stk_buf_text(&data, "{\"v\":");
        random_value(&data, 0);
        stk_buf_char(&data, '}');
        wanted w = {.data = data.data,
                    .kind = (stk_event_kind)next(STK_EV_N),
                    .time_ms = (int64_t)next(1u << 30),
                    .task = next(4) ? (uint32_t)next(UINT32_MAX) : UINT32_MAX,
                    .attempt = (uint32_t)next(1u << 20)};
        stk_event_row event = {.kind = w.kind,
                               .time_ms = w.time_ms,
                               .task = w.task,
                               .attempt = w.attempt,
                               .data = data.data};
        stk_commit commit = {.events = &event, .n_events = 1};
        int rc = stk_store_commit(f->store, run, &commit, &f->err);
        if (rc < 0) { /* only JSON that can't be read is refused */
            STK_ARENA_AUTO scratch = stk_arena_new(0);
            const stk_json *doc = stk_json_read(scratch, data.data);
            assert_int_equal(rc, STK_E_PROTOCOL);
            assert_null(doc);
            n_refused++;
            continue;
        }
        int read = stk_store_events(f->store, run, after, compare, &w, &f->err);
        if (read != 0 || w.n != 1) {
            fail_msg("seed %llu, round %d: %s", (unsigned long long)first, i, data.data);
        }
        after = event.seq;
        n_kept++;
    }
    print_message("%u kept, %u refused\n", n_kept, n_refused);
    assert_true(n_kept > ROUNDS / 2);
}

/* --- each kind with its own fields --- */

static void note_bad(void *arg, const char *digest, const char *what)
{
    stk_buf_printf(arg, "%s: %s\n", digest, what);
}

enum { TEXT, INT, BOOL, MAP, LIST };

static const struct field {
    stk_event_kind kind;
    const char *name;
    int type;
} fields[] = {
#define F(kind, name, type) {STK_EV_##kind, name, type},
#include "tbl/event_fields.def"
#undef F
};

enum { N_FIELDS = sizeof fields / sizeof *fields };

/* JSON that a caller may pass. is_sound: the store can keep it and read it again. */
typedef struct value {
    const char *json;
    bool is_sound;
    int type;
} value;

static const value values[] = {
    {"0", true, INT},
    {"-1", true, INT},
    {"9007199254740992", true, INT}, /* 2^53 */
    {"9007199254740993", true, INT}, /* a double can't hold it */
    {"-9007199254740993", true, INT},
    {"9223372036854775807", true, INT},
    {"-9223372036854775808", true, INT},
    {"9223372036854775808", false, INT},
    {"-9223372036854775809", false, INT},
    {"18446744073709551616", false, INT},
    {"1e308", true, INT},
    {"-1.7976931348623157e308", true, INT},
    {"4.9406564584124654e-324", true, INT},
    {"1e309", false, INT},
    {"NaN", false, INT},
    {"Infinity", false, INT},
    {"-Infinity", false, INT},
    {"", false, INT},
    {"\"\"", true, TEXT},
    {"\"\\u0000\"", true, TEXT},
    {"\"a\\u0000b\"", true, TEXT},
    {"\"\\ud83d\\ude00\"", true, TEXT},
    {"\"\\ud800\"", false, TEXT},        /* half of a pair, as json.dumps spells it */
    {"\"\\udcff\"", false, TEXT},        /* Python's escape of a byte that isn't UTF-8 */
    {"\"\\ude00\\ud83d\"", false, TEXT}, /* the halves in the wrong order */
    {"\"\xff\"", false, TEXT},
    {"\"/home/\xff\xfe/run\"", false, TEXT}, /* a folder's name */
    {"\"\xc3\"", false, TEXT},
    {"\"\xc0\x80\"", false, TEXT},     /* NUL, in an overlong form */
    {"\"\xed\xa0\x80\"", false, TEXT}, /* an encoded surrogate */
    {"\"\xf4\x90\x80\x80\"", false, TEXT},
    {"\"/home/\xc3\xbc/run\"", true, TEXT},
    {"\"\xe2\x80\xa8\x7f\xef\xbf\xbf\"", true, TEXT},
    {"\"\n\"", false, TEXT}, /* not escaped */
    {"true", true, BOOL},
    {"null", true, BOOL},
    {"maybe", false, BOOL},
};

enum { N_VALUES = sizeof values / sizeof *values };

/* In a map the value is a key, too, and keys can't have a NUL. */
static bool is_sound_in(const value *v, int type)
{
    return v->is_sound && (type != MAP || strstr(v->json, "\\u0000") == NULL);
}

/* Writes the value; in a map, a text is a key, too. */
static void put_value(stk_buf *out, int type, const value *v)
{
    if (type == LIST) {
        stk_buf_printf(out, "[%s,[%s]]", v->json, v->json);
    } else if (type == MAP && v->type == TEXT) {
        stk_buf_printf(out, "{\"k\":%s,%s:1}", v->json, v->json);
    } else if (type == MAP) {
        stk_buf_printf(out, "{\"k\":%s,\"l\":{\"m\":[%s]}}", v->json, v->json);
    } else {
        stk_buf_text(out, v->json);
    }
}

/* Writes all fields of a kind: field `i_bad` with `v`, the others with sound values. */
static void make_event(stk_buf *out, stk_event_kind kind, uint32_t i_bad, const value *v)
{
    bool is_first = true;
    stk_buf_char(out, '{');
    for (uint32_t i = 0; i < N_FIELDS; i++) {
        if (fields[i].kind != kind) {
            continue;
        }
        const value *now = v;
        while (i != i_bad && (now == v || !is_sound_in(now, fields[i].type) ||
                              (fields[i].type < MAP && now->type != fields[i].type))) {
            now = &values[next(N_VALUES)];
        }
        stk_buf_printf(out, "%s\"%s\":", is_first ? "" : ",", fields[i].name);
        put_value(out, fields[i].type, now);
        is_first = false;
    }
    stk_buf_char(out, '}');
}

/* Every field of every kind with every value: an accepted event reads back equal; a refused one
 * leaves nothing in the store, and its error names the kind. */
static void test_fields(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    bool has[STK_EV_N] = {false};
    uint64_t checked = 0, bytes = 0;
    STK_BUF_AUTO said = STK_BUF_INIT(4096);
    int64_t after = 0;
    seed = 0x5eed;
    for (uint32_t i = 0; i < N_FIELDS; i++) {
        has[fields[i].kind] = true;
        for (uint32_t k = 0; k < N_VALUES; k++) {
            STK_BUF_AUTO data = STK_BUF_INIT(1u << 20);
            bool is_sound = is_sound_in(&values[k], fields[i].type);
            make_event(&data, fields[i].kind, i, &values[k]);
            wanted w = {.data = data.data, .kind = fields[i].kind, .time_ms = 1, .task = 1};
            stk_event_row event = {
                .kind = w.kind, .time_ms = 1, .task = 1, .attempt = 0, .data = data.data};
            stk_commit commit = {.events = &event, .n_events = 1};
            int rc = stk_store_commit(f->store, run, &commit, &f->err);
            if (rc != (is_sound ? 0 : STK_E_PROTOCOL)) {
                fail_msg("%d, not %s: %s", rc, is_sound ? "kept" : "refused", data.data);
            }
            if (rc < 0) {
                assert_non_null(strstr(f->err.text, stk_event_word(w.kind)));
            }
            assert_int_equal(stk_store_events(f->store, run, after, compare, &w, &f->err), 0);
            if (w.n != (is_sound ? 1 : 0)) {
                fail_msg("%u events of %s", w.n, data.data);
            }
            if (is_sound) {
                after = event.seq;
            }
        }
    }
    for (int kind = 0; kind < STK_EV_N; kind++) {
        if (!has[kind]) {
            fail_msg("event_fields.def has no field of %s", stk_event_word((stk_event_kind)kind));
        }
    }
    OK(stk_store_verify(f->store, note_bad, &said, &checked, &bytes, &f->err));
    assert_true(said.len == 0);
}

/* Text of a megabyte, a list of 100,000 numbers, and values that are nested too deep. */
static void test_long(void **state)
{
    enum { LONG = 1 << 20, DEEP = 4096 };
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    int64_t after = 0;
    for (int kind = 0; kind < 4; kind++) {
        STK_BUF_AUTO data = STK_BUF_INIT(16u << 20);
        stk_buf_text(&data, kind == 3 ? "{\"metadata\":{\"k\":" : "{\"text\":");
        stk_buf_text(&data, kind == 0 ? "\"" : "");
        for (int i = 0; i < (kind == 0 ? LONG : kind == 1 ? 100000 : DEEP); i++) {
            stk_buf_text(&data, kind == 0  ? "\xc3\xbc"
                                : kind > 1 ? "["
                                : i == 0   ? "[9223372036854775807"
                                           : ",9223372036854775807");
        }
        for (int i = 0; kind > 1 && i < DEEP; i++) {
            stk_buf_char(&data, ']');
        }
        stk_buf_text(&data, kind == 0 ? "\"}" : kind == 1 ? "]}" : kind == 2 ? "}" : "}}");
        wanted w = {.data = data.data, .kind = STK_EV_NOTE, .time_ms = 1, .task = 1};
        stk_event_row event = {.kind = STK_EV_NOTE, .time_ms = 1, .task = 1, .data = data.data};
        stk_commit commit = {.events = &event, .n_events = 1};
        int rc = stk_store_commit(f->store, run, &commit, &f->err);
        assert_int_equal(rc, kind < 2 ? 0 : STK_E_PROTOCOL); /* too deep for readers */
        assert_int_equal(stk_store_events(f->store, run, after, compare, &w, &f->err), 0);
        assert_int_equal(w.n, kind < 2 ? 1 : 0);
        if (rc == 0) {
            after = event.seq;
        }
    }
    int64_t kept = sqlite3_memory_used();
    stk_store_release_memory(f->store);
    assert_true(sqlite3_memory_used() < kept - LONG);
}

static void test_refused(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    static const char *const bad[] = {"",
                                      "{",
                                      "[]",
                                      "1",
                                      "{\"a\":9223372036854775808}",
                                      "{\"a\":-9223372036854775809}",
                                      "{\"a\":1e999}",
                                      "{\"a\":\"\xff\"}",
                                      "{\"a\":\"\xed\xa0\x80\"}",
                                      "{\"a\":NaN}",
                                      "{\"a\":\"\n\"}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(commit_one(f, run, STK_EV_NOTE, 1, bad[i]), STK_E_PROTOCOL);
    }
    OK(commit_one(f, run, STK_EV_NOTE, 1, "{\"a\":9223372036854775807,\"b\":\"\\u0000\"}"));
}

/* True if readers of the record see an object. */
static bool is_object(const char *text)
{
    STK_ARENA_AUTO scratch = stk_arena_new(0);
    const stk_json *doc = stk_json_read(scratch, text);
    bool is = stk_json_is_map(doc);
    return is;
}

/* Documents that count as plain can be read: unchanged ones, and ones with some bytes changed or
 * taken away. */
static void test_plain(void **state)
{
    (void)state;
    static const char bytes[] = "{}[],:\"\\0123456789-+.eEtrufalsn /b\n\t\x01\x7f\xc3\xbc";
    unsigned n_plain = 0, n_plain_damaged = 0, n_unplain = 0;
    begin_random();
    for (int i = 0; i < 50 * ROUNDS; i++) {
        STK_BUF_AUTO data = STK_BUF_INIT(1u << 20);
        stk_buf_text(&data, "{\"v\":");
        random_value(&data, 1);
        stk_buf_text(&data,
                     next(2) ? ",\"w\":[true,null,-0.5,{\"a\\\"b\":{}},12],\"x\":false}" : "}");
        assert_false(data.failed);
        for (uint64_t n = i % 2 ? 0 : 1 + next(3); n > 0; n--) {
            size_t at = next(data.len);
            char byte = bytes[next(sizeof bytes - 1)];
            if (next(3) == 0) {
                memmove(data.data + at, data.data + at + 1, data.len - at);
                data.len--;
            } else {
                data.data[at] = byte;
            }
        }
        bool is_plain = stk_store_is_plain_object(data.data);
        if (is_plain && !is_object(data.data)) {
            fail_msg("it is no object: %s", data.data);
        }
        n_plain += is_plain;
        n_plain_damaged += is_plain && i % 2 == 0;
        n_unplain += !is_plain;
    }
    print_message("%u plain (%u of them changed), %u not\n", n_plain, n_plain_damaged, n_unplain);
    assert_true(n_plain > 100 && n_plain_damaged > 10 && n_unplain > 100);
}

static void test_plain_cases(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool is;
    } cases[] = {
        {"{}", true},
        {" { } ", true},
        {"{\"a\":[],\"b\":{},\"c\":[[{}]]}", true},
        {"{\"digest\":\"0f\",\"bytes\":123456789012345678,\"ok\":true,\"x\":null}", true},
        {"{\"wall_ms\":12,\"cpu\":-0.12345678901234567,\"text\":\"a\\n\\\"b\\\"\"}", true},
        {"", false},
        {"[]", false},
        {"1", false},
        {"{", false},
        {"{}}", false},
        {"{}x", false},
        {"{\"a\":1,}", false},
        {"{\"a\":[1,]}", false},
        {"{\"a\":[1}}", false},
        {"{\"a\" 1}", false},
        {"{a:1}", false},
        {"{\"a\":01}", false},
        {"{\"a\":1.}", false},
        {"{\"a\":.5}", false},
        {"{\"a\":-}", false},
        {"{\"a\":+1}", false},
        {"{\"a\":truex}", false},
        {"{\"a\":\"\n\"}", false},
        {"{\"a\":\"\\x\"}", false},
        {"{\"a\":\"\\", false},
        {"{\"a\":\"", false},
        {"{\"a\":1e999}", false},
        {"{\"a\":9223372036854775808}", false},
        {"{\"a\":\"\xff\"}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (stk_store_is_plain_object(cases[i].text) != cases[i].is ||
            (cases[i].is && !is_object(cases[i].text))) {
            fail_msg("%s", cases[i].text);
        }
    }
    char deep[512] = "{\"a\":";
    memset(deep + 5, '[', 200);
    memset(deep + 205, ']', 200);
    memcpy(deep + 405, "}", 2);
    assert_true(is_object(deep) && !stk_store_is_plain_object(deep));
}

static int count(void *arg, const stk_event_row *row)
{
    int *n = arg;
    n[0]++;
    n[1] += row->kind == STK_EV_NOTE && strstr(row->data, "is unknown") != NULL;
    return 0;
}

/* A damaged event hides no other event, and verify names it. */
static void test_damaged(void **state)
{
    fixture *f = *state;
    const char *run = new_run(f, NULL, "p", 0);
    int n[2] = {0};
    uint64_t checked = 0;
    uint64_t bytes = 0;
    STK_BUF_AUTO said = STK_BUF_INIT(4096);
    for (int i = 0; i < 4; i++) {
        OK(commit_one(f, run, STK_EV_NOTE, i, "{\"text\":\"x\"}"));
    }
    OK(stk_store_exec(f->store,
                      "UPDATE events SET kind = 'no such' WHERE id & 4294967295 = 2;"
                      "UPDATE events SET data = '{\"te' WHERE id & 4294967295 = 3",
                      &f->err));
    OK(stk_store_events(f->store, run, 0, count, n, &f->err));
    assert_int_equal(n[0], 4);
    assert_int_equal(n[1], 1);
    OK(stk_store_verify(f->store, note_bad, &said, &checked, &bytes, &f->err));
    assert_non_null(strstr(said.data, "event 2: damaged: its kind"));
    assert_non_null(strstr(said.data, "event 3: damaged: its data"));
    assert_null(strstr(said.data, "event 1:"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip), TEST(test_fields),      TEST(test_long),   TEST(test_refused),
        TEST(test_plain),      TEST(test_plain_cases), TEST(test_damaged)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
