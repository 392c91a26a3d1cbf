/* Devices, verdicts and idle stretches as people see them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/show_devices.h"
#include "show/show_html.h"
#include "show/show_json.h"
#include "show/show_testing.h"
#include "sys/file.h"

#define RUN "20261121-130501-7f3a"

static const char spec[] =
    "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"train\":{\"run\":\"true\",\"resources\":"
    "{\"gpu_count\":2}},\"plain\":{\"run\":\"true\",\"gpu_profile\":{}}}}";

static void feed(stk_show_case *c)
{
    stk_case_feed(c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0,
                  "{\"name\":\"n\",\"pipeline\":\"p\",\"spec\":\"d\",\"parameters\":{},\"mode\":"
                  "\"continue_on_failure\",\"policy\":\"fit\",\"notes\":[]}");
    stk_case_feed(c, STK_EV_RUN_STARTED, UINT32_MAX, 0, 1, "{\"pid\":1,\"boot\":\"b\"}");
    stk_case_feed(c, STK_EV_TASK_STARTED, 0, 1, 10,
                  "{\"granted\":{\"devices\":[{\"vendor\":\"nvidia\",\"index\":0,\"uuid\":"
                  "\"GPU-aa\",\"model\":\"NVIDIA H100 <b>\",\"memory_bytes\":80000000000},"
                  "{\"vendor\":\"nvidia\",\"index\":1,\"uuid\":\"GPU-bb\",\"model\":\"NVIDIA H100"
                  "\",\"memory_bytes\":80000000000,\"share_bytes\":10000000000}]},\"miss\":\"\"}");
    stk_case_feed(
        c, STK_EV_TASK_SUCCEEDED, 0, 1, 10010,
        "{\"outputs\":{},\"inputs\":{},\"used\":{\"cpu_s\":8,\"wall_s\":10,\"devices\":[{\"uuid\":"
        "\"GPU-aa\",\"busy_percent_mean\":43.0,\"busy_s\":4.3,\"peak_memory_bytes\":12100000000,"
        "\"context\":true,\"energy_j\":5100,\"peak_temperature_c\":71,\"throttled_s\":1.5},"
        "{\"uuid\":\"GPU-bb\",\"context\":false}],\"gpu_held_s\":20.0,\"gpu_busy_s\":4.3,"
        "\"energy_j\":5100,\"verdict\":{\"granted\":2,\"used\":1,\"cause\":\"not_moved\",\"text\":"
        "\"granted 2 GPUs, used 1: GPU 1 (GPU-bb) never had a context\"}}}");
    stk_case_feed(c, STK_EV_TASK_STARTED, 1, 1, 20, "{\"granted\":{\"devices\":[]}}");
    stk_case_feed(c, STK_EV_TASK_SUCCEEDED, 1, 1, 30,
                  "{\"outputs\":{},\"inputs\":{},\"used\":{\"cpu_s\":0,\"wall_s\":0.01,"
                  "\"devices\":[]}}");
}

static void has(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) {
        fail_msg("no '%s' in:\n%s", part, text);
    }
}

static void test_text(void **state)
{
    (void)state;
    stk_show_case c;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
    stk_style style = {.columns = 100};
    stk_case_new(&c, spec, "/s");
    feed(&c);
    assert_int_equal(stk_text_task(c.view, 0, stk_case_ms(11000), &style, &out, &err), 0);
    has(out.data, "used       0.8 CPU, 1 GPU");
    has(out.data, "NVIDIA H100 <b> GPU-aa (80 GB): busy 43 %, peak 12.1 GB, 71 C, 5.1 kJ, "
                  "throttled 1.50 s");
    has(out.data, "GPU-bb (10 GB of 80 GB): never had a context");
    has(out.data, "verdict    granted 2 GPUs, used 1: GPU 1 (GPU-bb) never had a context");
    stk_buf_clear(&out);
    assert_int_equal(stk_text_summary(c.view, NULL, NULL, stk_case_ms(11000), &style, &out, &err),
                     0);
    has(out.data, "20.0 GPU-s held, 4.3 busy, 5.1 kJ");
    stk_buf_clear(&out);
    assert_int_equal(stk_text_task(c.view, 1, stk_case_ms(11000), &style, &out, &err), 0);
    assert_null(strstr(out.data, "GPU"));
    stk_buf_clear(&out);
    assert_int_equal(stk_show_json_run(c.view, &out, &err), 0);
    has(out.data, "\"used\":{\"cpu_s\":8,\"gpu_held_s\":20,\"gpu_busy_s\":4.3,\"energy_j\":5100}");
    stk_case_done(&c);
}

/* Devices have their vendor's noun, also in sums; devices of several kinds are just "devices". */
static void test_other_kinds(void **state)
{
    (void)state;
    static const char *const nouns[][2] = {
        {"TPU chip", "TPU chip"}, {"Neuron device", "GPU"}, {"MIG slice", "MIG slice"}};
    static const char *const sums[] = {"7.0 TPU chip seconds held", "7.0 device seconds held",
                                       "7.0 MIG slice seconds held"};
    for (int i = 0; i < 3; i++) {
        stk_show_case c;
        stk_err err = {0};
        STK_BUF_AUTO out = STK_BUF_INIT(1 << 20);
        stk_style style = {.columns = 100};
        stk_case_new(&c, spec, "/s");
        for (uint32_t k = 0; k < 2; k++) {
            char start[200], end[200];
            (void)snprintf(start, sizeof start,
                           "{\"granted\":{\"cpus\":[0],\"devices\":[{\"uuid\":\"d%u\","
                           "\"noun\":\"%s\"}]}}",
                           k, nouns[i][k]);
            (void)snprintf(end, sizeof end,
                           "{\"outputs\":{},\"inputs\":{},\"used\":{\"cpu_s\":0,\"wall_s\":3,"
                           "\"gpu_held_s\":%u},\"warnings\":[\"its device idled\"]}",
                           3 + k);
            stk_case_feed(&c, STK_EV_TASK_STARTED, k, 1, 10, start);
            stk_case_feed(&c, STK_EV_TASK_SUCCEEDED, k, 1, 30, end);
        }
        assert_int_equal(
            stk_text_summary(c.view, NULL, NULL, stk_case_ms(11000), &style, &out, &err), 0);
        has(out.data, sums[i]);
        has(out.data, "! steps 'train', 'plain': its device idled\n"); /* one line for both */
        assert_null(strstr(strstr(out.data, "idled") + 1, "idled"));
        stk_case_done(&c);
    }
}

/* --- samples --- */

static char store[] = "/tmp/stk-devices-XXXXXX";

static void write_samples(void)
{
    static const char *const uuids[] = {"GPU-aa", "GPU-bb"};
    char path[256];
    stk_err err = {0};
    int fd = -1;
    (void)snprintf(path, sizeof path, "%s/runs/" RUN "/train/0/1", store);
    assert_int_equal(stk_file_mkdirs(path, 0777, &err), 0);
    (void)strcat(path, "/samples.bin");
    assert_int_equal(stk_samples_create(path, 0, 2, uuids, &fd, &err), 0);
    for (int i = 0; i <= 20; i++) {
        stk_sample_device devices[2] = {STK_SAMPLE_DEVICE_UNKNOWN, STK_SAMPLE_DEVICE_UNKNOWN};
        devices[0].busy_percent = i > 5 && i <= 12 ? 2 : 90; /* idle from 2.5 s to 6 s */
        devices[0].power_mw = 300000 + i;
        devices[0].temperature_c = 60;
        devices[0].memory_bytes = 1000000000ll * i;
        devices[0].nvlink_tx_bytes = devices[0].nvlink_rx_bytes = 1000000ll * i;
        stk_sample sample = {.time_ms = i * 500,
                             .rss_bytes = 1 << 20,
                             .cpu_us = i * 400000,
                             .devices = devices,
                             .read_bytes = i * 1000000,
                             .write_bytes = 0};
        assert_int_equal(stk_samples_append(fd, &sample, 2), 0);
    }
    assert_int_equal(close(fd), 0);
}

static void test_card(void **state)
{
    (void)state;
    stk_show_case c;
    stk_err err = {0};
    STK_BUF_AUTO out = STK_BUF_INIT(4 << 20);
    write_samples();
    stk_case_new(&c, spec, store);
    feed(&c);
    assert_int_equal(stk_html_card(c.view, NULL, stk_case_ms(11000), false, &out, &err), 0);
    has(out.data, "NVIDIA H100 &lt;b&gt;");
    has(out.data, "<div class=\"note\">granted 2 GPUs, used 1");
    has(out.data,
        "GPU-aa was idle for 3.50 s of 10.0 s, in 1 stretch; the longest 3.50 s from second 2.5");
    has(out.data, ">GPU 0 power<");
    has(out.data, ">GPU 0 temperature<");
    has(out.data, ">GPU 0 NVLink per second<");
    has(out.data, ">disk per second<");
    assert_null(strstr(out.data, ">GPU 1 ")); /* unknown values: no curve */
    assert_null(strstr(out.data, ">GPU 0 clock<"));
    has(out.data, "was granted no device, so there is nothing to profile");
    has(out.data, "<b>20.0 s</b><span>devices held</span>");
    stk_case_done(&c);
}

static void test_alternatives(void **state)
{
    (void)state;
    static const stk_alternative any_of[] = {
        {.gpu_count = -1, .gpu_memory_bytes = -1, .gpu_class = "H100"},
        {.gpu_count = 4, .gpu_memory_bytes = -1, .gpu_vendor = "google"},
        {.gpu_count = 1,
         .gpu_memory_bytes = 10000000000,
         .gpu_vendor = "nvidia",
         .gpu_class = "T4"},
        {.gpu_count = 2, .gpu_memory_bytes = -1},
    };
    STK_BUF_AUTO out = STK_BUF_INIT(1 << 12);
    const stk_resources one = {.any_of = any_of, .n_any_of = 1};
    stk_text_alternatives(&one, true, &out);
    assert_int_equal(out.len, 0);
    const stk_resources asked = {.any_of = any_of, .n_any_of = 4};
    stk_text_alternatives(&asked, true, &out);
    assert_string_equal(out.data, " (H100; 4 × google; nvidia T4 with 10 GB; 2 × any device)");
}

static void test_idle(void **state)
{
    (void)state;
    static const int32_t busy[] = {0, 0, 0, 50, 0, -1, 3, 3, 3, 3, 100, 0};
    stk_sample_device devices[12];
    stk_sample samples[12];
    static const char *const uuids[] = {"GPU-aa"};
    for (int i = 0; i < 12; i++) {
        devices[i] = STK_SAMPLE_DEVICE_UNKNOWN;
        devices[i].busy_percent = busy[i];
        samples[i] = (stk_sample){.time_ms = 1000 * (i + 1), .devices = &devices[i]};
    }
    stk_samples s = {.n_devices = 1, .uuids = uuids, .n = 12, .samples = samples};
    stk_idle idle;
    assert_true(stk_show_idle(&s, 0, &idle));
    assert_int_equal(idle.n, 2); /* 0…3 s and 6…10 s; short or unknown stretches don't count */
    assert_true(idle.total_s == 7 && idle.longest_s == 4 && idle.longest_from_s == 6);
    assert_true(idle.known_s == 11);
    s.n = 0;
    assert_false(stk_show_idle(&s, 0, &idle));
}

static int begin(void **state)
{
    (void)state;
    return mkdtemp(store) == NULL ? -1 : 0;
}

static int end(void **state)
{
    (void)state;
    return stk_file_remove_tree(store, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),         cmocka_unit_test(test_other_kinds),
        cmocka_unit_test(test_card),         cmocka_unit_test(test_idle),
        cmocka_unit_test(test_alternatives),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
