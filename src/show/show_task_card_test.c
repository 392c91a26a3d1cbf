/* The page of a task: the step's report and the engine's record; hostile files do no harm. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "base/text.h"
#include "host/runner/runner_samples.h"
#include "show/show_task_card.h"
#include "show/show_testing.h"
#include "sys/file.h"

typedef struct folder {
    char store[40];
    stk_show_case c;
} folder;

static void begin(folder *f)
{
    strcpy(f->store, "/tmp/stk_cards_XXXXXX");
    assert_non_null(mkdtemp(f->store));
    stk_case_flow(&f->c, f->store, 3);
}

static void end(folder *f)
{
    stk_err err = {0};
    stk_case_done(&f->c);
    assert_int_equal(stk_file_remove_tree(f->store, &err), 0);
}

/* Writes `name` into the cards of work/2's first attempt. */
static void put(const folder *f, const char *name, const char *text)
{
    stk_err err = {0};
    STK_BUF_AUTO path = STK_BUF_INIT(4096);
    stk_buf_printf(&path, "%s/runs/20261121-130501-7f3a/work/2/1/cards", f->store);
    assert_int_equal(stk_file_mkdirs(path.data, 0755, &err), 0);
    stk_buf_printf(&path, "/%s", name);
    assert_int_equal(stk_file_write(path.data, text, strlen(text), 0644, &err), 0);
}

/* The record's document of the steps' code. */
static void keep_code(folder *f)
{
    static const char json[] =
        "{\"stoker\":1,\"steps\":{\"work\":[0,7,-1,1]},\"parts\":[{\"name\":\"function\","
        "\"file\":\"<f>.py\",\"text\":\"def f(): '<b>'\"},{\"name\":\"module "
        "<u>\",\"text\":\"x\"}]}";
    stk_err err = {0};
    STK_BUF_AUTO path = STK_BUF_INIT(4096), data = STK_BUF_INIT(4096);
    stk_buf_printf(&path, "%s/artifacts/aa", f->store);
    stk_buf_text(&data, "{\"code\":\"");
    assert_int_equal(stk_file_mkdirs(path.data, 0755, &err), 0);
    stk_buf_char(&path, '/');
    for (int i = 0; i < STK_DIGEST_HEX; i++) {
        stk_buf_char(&data, 'a');
        stk_buf_text(&path, stk_text_when(i > 1, "a"));
    }
    stk_buf_text(&data, "\"}");
    assert_int_equal(stk_file_write(path.data, json, strlen(json), 0644, &err), 0);
    stk_case_feed(&f->c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 5, data.data);
}

static int page(const folder *f, const char *id, stk_buf *out, stk_err *err)
{
    const stk_task_card_options options = {.rank = -1, .id = id};
    stk_buf_clear(out);
    return stk_html_task_card(f->c.view, 1, &options, stk_case_ms(60000), out, err);
}

static void test_page(void **state)
{
    (void)state;
    folder f;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    begin(&f);
    /* Without a card, the page has the engine's record. */
    assert_int_equal(page(&f, NULL, &out, &err), 0);
    stk_case_well_formed(out.data);
    assert_non_null(strstr(out.data, "<h2>Artifacts</h2>"));
    assert_null(strstr(out.data, "Report of the step"));
    assert_int_equal(page(&f, "none", &out, &err), STK_E_NOT_FOUND);
    assert_non_null(strstr(err.text, "task work/2 has no card 'none'"));

    keep_code(&f);
    put(&f, "default.json",
        "{\"stoker\":1,\"type\":\"default\",\"id\":null,\"title\":null,\"previews\":{\"part\":\"<"
        "script>p</script>\"},"
        "\"components\":[{\"kind\":\"markdown\",\"text\":\"# Hello\"}]}");
    put(&f, "b.json",
        "{\"stoker\":1,\"type\":\"blank\",\"id\":\"b\",\"title\":\"<script>t\","
        "\"components\":[{\"kind\":\"markdown\",\"text\":\"blank\"}]}");
    put(&f, "own.json", "{\"stoker\":1,\"type\":\"mine\",\"id\":\"own\",\"html\":\"own.html\"}");
    put(&f, "own.html", "<h1>mine</h1>");
    put(&f, "broken.json", "{\"type\":");
    put(&f, "out.json", "{\"type\":\"x\",\"html\":\"../../../../../../../etc/passwd\"}");
    put(&f, ".default.json", "{}");
    assert_int_equal(page(&f, NULL, &out, &err), 0);
    stk_case_well_formed(out.data);
    assert_null(strstr(out.data, "://"));
    static const char *const words[] = {"<h1>Hello</h1>",
                                        "<h2>Code of the step</h2>",
                                        "<code>function</code>",
                                        "&lt;f&gt;.py",
                                        "&lt;b&gt;",
                                        "&lt;script&gt;p&lt;/script&gt;",
                                        "<h2>Graph</h2>",
                                        "img-src data:; style-src"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(out.data, words[i]) == NULL) {
            fail_msg("the page doesn't say: %s", words[i]);
        }
    }
    assert_int_equal(page(&f, "b", &out, &err), 0);
    stk_case_well_formed(out.data);
    assert_non_null(strstr(out.data, "<h1>&lt;script&gt;t</h1>"));
    assert_null(strstr(out.data, "<h2>Artifacts</h2>"));
    assert_int_equal(page(&f, "own", &out, &err), 0);
    assert_string_equal(out.data, "<h1>mine</h1>");
    assert_int_equal(page(&f, "broken", &out, &err), 0);
    assert_int_equal(page(&f, "out", &out, &err), 0);
    assert_null(strstr(out.data, "root:"));
    end(&f);
}

static void test_list(void **state)
{
    (void)state;
    folder f;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    begin(&f);
    assert_int_equal(stk_task_cards_json(f.c.view, 1, -1, arena, &out, &err), 0);
    assert_string_equal(out.data, "[]");
    put(&f, "own.json", "{\"stoker\":1,\"type\":\"mine\",\"id\":\"own\",\"html\":\"own.html\"}");
    put(&f, "default.json", "{\"stoker\":1,\"type\":\"default\",\"id\":null}");
    stk_buf_clear(&out);
    assert_int_equal(stk_task_cards_json(f.c.view, 1, -1, arena, &out, &err), 0);
    const char *first = strstr(out.data, "{\"id\":null,\"name\":\"default\",\"type\":\"default\"");
    assert_true(first == out.data + 1);
    assert_non_null(strstr(out.data, "{\"id\":\"own\",\"name\":\"own\",\"type\":\"mine\""));
    assert_non_null(strstr(out.data, "/work/2/1/cards/own.html\"}]"));
    /* Rank 1 has its own cards, here none. */
    stk_buf_clear(&out);
    assert_int_equal(stk_task_cards_json(f.c.view, 1, 1, arena, &out, &err), 0);
    assert_string_equal(out.data, "[]");
    end(&f);
}

/* A step with @gpu_profile gets a page of its devices without writing a card. */
static void test_devices(void **state)
{
    (void)state;
    char store[] = "/tmp/stk_cards_XXXXXX";
    assert_non_null(mkdtemp(store));
    stk_show_case c;
    stk_err err = {0};
    STK_BUF_AUTO path = STK_BUF_INIT(4096);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_case_new(&c,
                 "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\","
                 "\"gpu_profile\":true}}}",
                 store);
    stk_case_feed(&c, STK_EV_TASK_STARTED, 0, 1, 10,
                  "{\"granted\":{\"devices\":[{\"uuid\":\"GPU-1\",\"model\":\"NVIDIA <T4>\","
                  "\"index\":0,\"memory_bytes\":16000000000}]}}");
    assert_int_equal(stk_task_cards_json(c.view, 0, -1, arena, &out, &err), 0);
    assert_string_equal(out.data, "[]"); /* nothing was sampled yet */
    stk_buf_printf(&path, "%s/runs/20261121-130501-7f3a/a/0/1", store);
    assert_int_equal(stk_file_mkdirs(path.data, 0755, &err), 0);
    stk_buf_text(&path, "/samples.bin");
    const char *uuids[] = {"GPU-1"};
    int fd;
    assert_int_equal(stk_samples_create(path.data, stk_case_ms(0), 1, uuids, &fd, &err), 0);
    for (int i = 1; i <= 50; i++) {
        stk_sample_device device = STK_SAMPLE_DEVICE_UNKNOWN;
        device.memory_bytes = 1000000ll * i;
        device.busy_percent = 50;
        stk_sample sample = {i * 100, 1000000, i * 20000, &device, -1, -1};
        assert_int_equal(stk_samples_append(fd, &sample, 1), 0);
    }
    close(fd);
    stk_buf_clear(&out);
    assert_int_equal(stk_task_cards_json(c.view, 0, -1, arena, &out, &err), 0);
    assert_non_null(strstr(out.data, "\"name\":\"gpu_profile\",\"type\":\"gpu_profile\""));
    const stk_task_card_options options = {.rank = -1, .id = "gpu_profile", .reload_s = 5};
    stk_buf_clear(&out);
    assert_int_equal(stk_html_task_card(c.view, 0, &options, stk_case_ms(60000), &out, &err), 0);
    stk_case_well_formed(out.data);
    static const char *const words[] = {"GPU 0 memory", ">peak 50 %<", "NVIDIA &lt;T4&gt;",
                                        "http-equiv=\"refresh\" content=\"5\""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(out.data, words[i]) == NULL) {
            fail_msg("the page doesn't say: %s", words[i]);
        }
    }
    assert_null(strstr(out.data, "<h2>Graph</h2>"));
    stk_case_done(&c);
    assert_int_equal(stk_file_remove_tree(store, &err), 0);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_page), cmocka_unit_test(test_list),
                                       cmocka_unit_test(test_devices)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
