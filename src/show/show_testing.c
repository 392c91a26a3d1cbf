#include "show/show_testing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/testing.h"
#include "sys/file.h"

int64_t stk_case_ms(int64_t at_ms)
{
    return STK_CASE_T0 * 1000ll + at_ms;
}

static void must(int rc, const stk_err *err)
{
    if (rc < 0) {
        fail_msg("%s", err->text);
    }
}

void stk_case_new(stk_show_case *c, const char *spec_json, const char *store_path)
{
    stk_err err = {0};
    *c = (stk_show_case){0};
    must(stk_spec_parse(spec_json, strlen(spec_json),
                        &(stk_spec_place){.path = "/w/pipeline.json", .folder = "/w"}, &c->spec,
                        &err),
         &err);
    must(stk_view_new(c->spec, "20261121-130501-7f3a", store_path, &c->view, &err), &err);
}

void stk_case_done(stk_show_case *c)
{
    stk_view_free(c->view);
    stk_spec_free(c->spec);
}

void stk_case_feed(stk_show_case *c, stk_event_kind kind, uint32_t task, uint32_t attempt,
                   int64_t at_ms, const char *data)
{
    stk_err err = {0};
    stk_event_row row = {++c->seq, stk_case_ms(at_ms), kind, task, attempt, data};
    must(stk_view_fold(c->view, &row, &err), &err);
}

static const char mixed_spec[] =
    "{\"stoker\":1,\"name\":\"digits\",\"parameters\":{\"epochs\":30,\"lr\":0.1},"
    "\"steps\":{"
    "\"load\":{\"run\":\"true\",\"outputs\":[\"data\"],\"source\":\"train.py:10\"},"
    "\"split\":{\"run\":\"true\",\"inputs\":{\"data\":{\"from\":\"load.data\"}},"
    "\"outputs\":[\"train\",\"test\"],\"source\":\"train.py:20\"},"
    "\"train\":{\"run\":\"true\",\"inputs\":{\"data\":{\"from\":\"split.train\"},"
    "\"epochs\":{\"param\":\"epochs\"}},\"outputs\":[\"model\"],\"retry\":{\"max_retries\":2},"
    "\"resources\":{\"cpu_count\":2,\"gpu_count\":1,\"memory\":\"4GB\"},\"source\":\"train.py:30\"}"
    ","
    "\"evaluate\":{\"run\":\"true\",\"inputs\":{\"model\":{\"from\":\"train.model\"},"
    "\"data\":{\"from\":\"split.test\"}},\"outputs\":[\"score\"],\"source\":\"train.py:41\"},"
    "\"report\":{\"run\":\"true\",\"inputs\":{\"all\":{\"from\":[\"evaluate.score\","
    "\"train.model\"]}},\"outputs\":[\"page\"]},"
    "\"publish\":{\"run\":\"true\",\"after\":[\"report\"]}}}";

#define DIGEST "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

void stk_case_mixed(stk_show_case *c, const char *store_path)
{
    stk_case_new(c, mixed_spec, store_path);
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0,
                  "{\"name\":\"nightly\",\"pipeline\":\"digits\",\"spec\":\"" DIGEST "\","
                  "\"parameters\":{\"epochs\":30,\"lr\":0.97},\"mode\":\"continue_on_failure\","
                  "\"policy\":\"fit\",\"max_workers\":4,\"seed\":1,\"tags\":[\"a\"],"
                  "\"origin\":{\"file\":\"train.py\",\"argv\":[\"train.py\",\"--x=<b>\"]},"
                  "\"host\":{\"name\":\"w1\",\"cpus\":8,\"memory_bytes\":32000000000,"
                  "\"devices\":[]},\"notes\":[\"step 'train' asked for 1 GPU: this machine has "
                  "none, it ran on the CPU (policy fit)\"]}");
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 5,
                  "{\"pid\":1,\"boot\":\"b\",\"resumed\":false}");
    stk_case_feed(
        c, STK_EV_TASK_CACHED, 0, 0, 10,
        "{\"key\":\"k\",\"from_run\":\"20261120-090000-aaaa\",\"outputs\":{\"data\":"
        "{\"digest\":\"" DIGEST "\",\"size\":921600,\"format\":\"npy\",\"type\":"
        "\"numpy.ndarray\",\"meta\":{\"shape\":[1797,64]}}},\"metadata\":{\"rows\":1797}}");
    stk_case_feed(c, STK_EV_TASK_STARTED, 1, 1, 20,
                  "{\"granted\":{\"cpus\":[0,1],\"memory_bytes\":0,\"devices\":[]},"
                  "\"miss\":\"never ran before\"}");
    stk_case_feed(c, STK_EV_TASK_SUCCEEDED, 1, 1, 440,
                  "{\"outputs\":{\"train\":{\"digest\":\"" DIGEST "\",\"size\":700000,\"format\":"
                  "\"npy\",\"type\":\"numpy.ndarray\",\"meta\":{}},\"test\":{\"digest\":\"" DIGEST
                  "\",\"size\":200000,\"format\":\"npy\",\"type\":\"numpy.ndarray\",\"meta\":{}}},"
                  "\"inputs\":{\"data\":\"" DIGEST "\"},\"used\":{\"cpu_s\":0.38,\"wall_s\":0.42,"
                  "\"peak_memory_bytes\":210000000,\"devices\":[]},\"metadata\":{},"
                  "\"warnings\":[]}");
    stk_case_feed(c, STK_EV_TASK_STARTED, 2, 1, 450,
                  "{\"granted\":{\"cpus\":[0,1],\"memory_bytes\":4000000000,\"devices\":[]},"
                  "\"miss\":\"code of 'train' changed\"}");
    stk_case_feed(c, STK_EV_TASK_FAILED, 2, 1, 900,
                  "{\"class\":\"signal\",\"text\":\"killed by signal 11 (SIGSEGV)\",\"used\":"
                  "{\"cpu_s\":0.4,\"wall_s\":0.45,\"peak_memory_bytes\":100,\"devices\":[]},"
                  "\"final\":false}");
    stk_case_feed(c, STK_EV_TASK_RETRYING, 2, 1, 901,
                  "{\"at_ms\":1795266302900,\"delay_ms\":1000}");
    stk_case_feed(c, STK_EV_TASK_STARTED, 2, 2, 1901,
                  "{\"granted\":{\"cpus\":[0,1],\"memory_bytes\":4000000000,\"devices\":[]},"
                  "\"miss\":\"code of 'train' changed\"}");
    stk_case_feed(
        c, STK_EV_TASK_SUCCEEDED, 2, 2, 5001,
        "{\"outputs\":{\"model\":{\"digest\":\"" DIGEST "\",\"size\":48000,\"format\":"
        "\"safetensors+pickle\",\"type\":\"Net<script>alert(1)</script>\",\"meta\":{},"
        "\"tags\":[\"best\"],\"name\":\"digits-net\",\"version\":\"3\"}},\"inputs\":"
        "{\"data\":\"" DIGEST "\"},\"used\":{\"cpu_s\":5.9,\"wall_s\":3.1,"
        "\"peak_memory_bytes\":1200000000,\"devices\":[]},\"metadata\":{\"accuracy\":0.97,"
        "\"note\":\"<img src=x onerror=alert(1)>\",\"nested\":{\"a\":[1,2.5,null]}},"
        "\"warnings\":[\"output 'model' was pickled\"]}");
    stk_case_feed(c, STK_EV_TASK_STARTED, 3, 1, 5010,
                  "{\"granted\":{\"cpus\":[2],\"memory_bytes\":0,\"devices\":[]},"
                  "\"miss\":\"input 'model' changed\"}");
    stk_case_feed(c, STK_EV_TASK_FAILED, 3, 1, 5610,
                  "{\"class\":\"exception\",\"text\":\"ValueError: bad \\u001b[31m & <tag>\","
                  "\"used\":{\"cpu_s\":0.5,\"wall_s\":0.6,\"peak_memory_bytes\":90000000,"
                  "\"devices\":[]},\"traceback\":\"Traceback (most recent call last):\\n  File "
                  "\\\"train.py\\\", line 41, in evaluate\\n    raise ValueError\\nValueError: bad "
                  "<script>alert(2)</script>\\n\",\"where\":\"train.py:41\",\"final\":true}");
    stk_case_feed(c, STK_EV_TASK_SKIPPED, 4, 0, 5611, "{\"because\":\"evaluate\"}");
    stk_case_feed(c, STK_EV_TASK_SKIPPED, 5, 0, 5612, "{\"because\":\"report\"}");
    stk_case_feed(c, STK_EV_RUN_ENDED, UINT32_MAX, 0, 5620,
                  "{\"status\":\"failed\",\"error\":\"step 'evaluate' failed\"}");
}

void stk_case_many(stk_show_case *c, uint32_t n)
{
    STK_BUF_AUTO spec = STK_BUF_INIT(1u << 30);
    stk_buf_text(&spec, "{\"stoker\":1,\"name\":\"many\",\"steps\":{");
    for (uint32_t i = 0; i < n; i++) {
        stk_buf_printf(&spec, "%s\"work_%05u\":{\"run\":\"true\"", i > 0 ? "," : "", i);
        if (i >= 100) {
            stk_buf_printf(&spec, ",\"after\":[\"work_%05u\"]", i - 100);
        }
        stk_buf_char(&spec, '}');
    }
    stk_buf_text(&spec, "}}");
    stk_case_new(c, spec.data, "/s");
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0, "{\"name\":\"many\"}");
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 0, "{}");
    for (uint32_t i = 0; i < n; i++) {
        stk_case_feed(c, STK_EV_TASK_STARTED, i, 1, i, "{\"granted\":{\"cpus\":[0]}}");
        if (i % 1000 == 999) {
            stk_case_feed(c, STK_EV_TASK_FAILED, i, 1, i + 20,
                          "{\"class\":\"exit\",\"text\":\"exit status 3\",\"final\":true,"
                          "\"used\":{\"cpu_s\":0.01,\"wall_s\":0.02}}");
        } else {
            stk_case_feed(c, STK_EV_TASK_SUCCEEDED, i, 1, i + 10 + i % 7,
                          "{\"used\":{\"cpu_s\":0.01,\"wall_s\":0.01}}");
        }
    }
    stk_case_feed(c, STK_EV_RUN_ENDED, UINT32_MAX, 0, n + 20, "{\"status\":\"failed\"}");
}

/* --- growing runs --- */

static const char flow_spec[] =
    "{\"stoker\":1,\"name\":\"grown\",\"steps\":{"
    "\"start\":{\"run\":\"true\",\"outputs\":[\"todo\"],\"next\":\"work\",\"foreach\":\"todo\"},"
    "\"work\":{\"run\":\"true\",\"next\":\"gather\"},"
    "\"gather\":{\"run\":\"true\",\"join\":true,\"outputs\":[\"verdict\"],\"switch\":\"verdict\","
    "\"cases\":{\"no\":\"bad\",\"yes\":\"good\"}},"
    "\"bad\":{\"run\":\"true\"},"
    "\"good\":{\"run\":\"true\"}}}";

static const char nested_spec[] =
    "{\"stoker\":1,\"name\":\"nested\",\"steps\":{"
    "\"start\":{\"run\":\"true\",\"outputs\":[\"a\"],\"next\":\"inner\",\"foreach\":\"a\"},"
    "\"inner\":{\"run\":\"true\",\"outputs\":[\"b\"],\"next\":\"leaf\",\"foreach\":\"b\"},"
    "\"leaf\":{\"run\":\"true\",\"next\":\"meet\"},"
    "\"meet\":{\"run\":\"true\",\"join\":true,\"next\":\"end\"},"
    "\"end\":{\"run\":\"true\",\"join\":true}}}";

static const char gang_spec[] =
    "{\"stoker\":1,\"name\":\"gang\",\"steps\":{"
    "\"start\":{\"run\":\"true\",\"next\":\"train\",\"num_parallel\":2},"
    "\"train\":{\"run\":\"true\",\"next\":\"end\"},"
    "\"end\":{\"run\":\"true\",\"join\":true}}}";

#define REF                                                                                        \
    "{\"digest\":\"" DIGEST "\",\"size\":8,\"format\":\"json\",\"type\":\"int\",\"meta\":{}}"

static void begin(stk_show_case *c)
{
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0, "{\"name\":\"grown\",\"tags\":[\"a\"]}");
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 0, "{}");
    stk_case_feed(c, STK_EV_TASK_ADDED, 0, 0, 1, "{\"step\":\"start\",\"n\":1,\"deps\":[]}");
}

static void ran(stk_show_case *c, uint32_t task, int64_t at_ms, const char *end)
{
    stk_case_feed(c, STK_EV_TASK_STARTED, task, 1, at_ms, "{\"granted\":{\"cpus\":[0]}}");
    stk_case_feed(c, STK_EV_TASK_SUCCEEDED, task, 1, at_ms + 30, end);
}

void stk_case_flow(stk_show_case *c, const char *store_path, uint32_t n)
{
    char text[256];
    stk_case_new(c, flow_spec, store_path);
    begin(c);
    ran(c, 0, 2,
        "{\"outputs\":{\"todo\":" REF ",\"cfg\":" REF ",\"secret\":" REF
        "},\"used\":{\"cpu_s\":0.01,\"wall_s\":0.03},\"next\":{\"steps\":[\"work\"],\"n\":12}}");
    (void)snprintf(text, sizeof text,
                   "{\"step\":\"work\",\"n\":%u,\"deps\":[0],\"split\":0,\"branch\":0}", n);
    stk_case_feed(c, STK_EV_TASK_ADDED, 1, 0, 32, text);
    STK_BUF_AUTO join = STK_BUF_INIT(1u << 24);
    stk_buf_text(&join, "{\"step\":\"gather\",\"n\":1,\"deps\":[");
    for (uint32_t i = 1; i <= n; i++) {
        stk_buf_printf(&join, i > 1 ? ",%u" : "%u", i);
        if (i < n) {
            ran(c, i, 40 + i,
                "{\"outputs\":{\"part\":" REF ",\"cfg\":" REF "},\"dropped\":[\"secret\"],"
                "\"used\":{\"cpu_s\":0.02,\"wall_s\":0.03,\"peak_memory_bytes\":1000000}}");
        } else {
            stk_case_feed(c, STK_EV_TASK_CACHED, i, 0, 40,
                          "{\"from_run\":\"20261120-090000-aaaa\",\"from_task\":8,\"outputs\":{}}");
        }
    }
    stk_buf_text(&join, "]}");
    stk_case_feed(c, STK_EV_TASK_ADDED, n + 1, 0, 90 + n, join.data);
    ran(c, n + 1, 100 + n,
        "{\"outputs\":{\"total\":" REF "},\"next\":{\"steps\":[\"bad\"],\"n\":1}}");
    (void)snprintf(text, sizeof text, "{\"step\":\"bad\",\"n\":1,\"deps\":[%u]}", n + 1);
    stk_case_feed(c, STK_EV_TASK_ADDED, n + 2, 0, 140 + n, text);
    stk_case_feed(c, STK_EV_TASK_STARTED, n + 2, 1, 150 + n, "{\"granted\":{\"cpus\":[0]}}");
    stk_case_feed(c, STK_EV_TASK_FAILED, n + 2, 1, 170 + n,
                  "{\"class\":\"exit\",\"text\":\"exit status 3\",\"final\":true}");
    stk_case_feed(c, STK_EV_RUN_ENDED, UINT32_MAX, 0, 180 + n, "{\"status\":\"failed\"}");
}

void stk_case_nested(stk_show_case *c, const char *store_path)
{
    stk_case_new(c, nested_spec, store_path);
    begin(c);
    ran(c, 0, 2, "{}");
    stk_case_feed(c, STK_EV_TASK_ADDED, 1, 0, 40,
                  "{\"step\":\"inner\",\"n\":2,\"deps\":[0],\"split\":0,\"branch\":0}");
    ran(c, 1, 50, "{}");
    stk_case_feed(c, STK_EV_TASK_ADDED, 3, 0, 80,
                  "{\"step\":\"leaf\",\"n\":3,\"deps\":[1],\"split\":1,\"branch\":0}");
    ran(c, 2, 90, "{}");
    stk_case_feed(c, STK_EV_TASK_ADDED, 6, 0, 130,
                  "{\"step\":\"leaf\",\"n\":3,\"deps\":[2],\"split\":2,\"branch\":0}");
}

void stk_case_gang(stk_show_case *c, const char *store_path)
{
    stk_case_new(c, gang_spec, store_path);
    begin(c);
    ran(c, 0, 2, "{\"outputs\":{\"a\":" REF "}}");
    stk_case_feed(c, STK_EV_TASK_ADDED, 1, 0, 40,
                  "{\"step\":\"train\",\"n\":1,\"deps\":[0],\"split\":0,\"branch\":0,\"ranks\":2}");
    ran(c, 1, 50,
        "{\"outputs\":{\"x\":" REF "},\"ranks\":[{\"outputs\":{\"x\":" REF ",\"y\":" REF
        "},\"dropped\":[\"a\"]}]}");
}

void stk_case_golden(const char *name, const char *text)
{
    char path[4096];
    const char *slash = strrchr(__FILE__, '/');
    (void)snprintf(path, sizeof path, "%.*s/../../tests/data/report/%s", (int)(slash - __FILE__),
                   __FILE__, name);
    stk_err err = {0};
    if (getenv("STOKER_UPDATE_GOLDEN") != NULL) {
        must(stk_file_write_atomic(path, text, strlen(text), 0644, &err), &err);
    }
    STK_TEXT_AUTO golden = NULL;
    size_t len;
    must(stk_file_read(path, 1u << 24, &golden, &len, &err), &err);
    assert_string_equal(text, golden);
}

void stk_case_well_formed(const char *html)
{
    enum { DEPTH = 200 };
    char names[DEPTH][32];
    int depth = 0;
    const char *s = strstr(html, "<html");
    s = s != NULL ? s : html;
    for (; *s != '\0'; s++) {
        if (*s == '&') {
            size_t n = strcspn(s, ";");
            assert_true(n >= 2 && n <= 6);
        }
        if (*s != '<') {
            continue;
        }
        bool closing = s[1] == '/';
        const char *name = s + 1 + closing;
        size_t n = strcspn(name, " />\n");
        assert_true(n > 0 && n < sizeof names[0]);
        const char *at = name;
        for (bool quoted = false; quoted || *at != '>'; at++) {
            assert_true(*at != '\0' && *at != '<');
            quoted ^= *at == '"';
        }
        if (closing) {
            assert_true(depth > 0);
            depth--;
            assert_int_equal(strlen(names[depth]), n);
            assert_memory_equal(names[depth], name, n);
        } else if (at[-1] != '/') {
            assert_true(depth < DEPTH);
            (void)snprintf(names[depth++], sizeof names[0], "%.*s", (int)n, name);
        }
        s = at;
    }
    assert_int_equal(depth, 0);
}
