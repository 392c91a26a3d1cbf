/* The card is well-formed, escaped and self-contained; pictures; the layout keeps its promises. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/param.h>
#include <unistd.h>

#include "base/testing.h"
#include "show/show_graph.h"
#include "show/show_html.h"
#include "show/show_svg.h"
#include "show/show_testing.h"
#include "sys/file.h"

static int n_times(const char *text, const char *word)
{
    int n = 0;
    for (; (text = strstr(text, word)) != NULL; text += strlen(word)) {
        n++;
    }
    return n;
}

static void make_card(const stk_show_case *c, stk_buf *out)
{
    stk_err err = {0};
    if (stk_html_card(c->view, NULL, stk_case_ms(60000), false, out, &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static void test_card(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_mixed(&c, "/s");
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    /* Hostile text appears as text. */
    assert_null(strstr(out.data, "<script"));
    assert_null(strstr(out.data, "<img"));
    assert_non_null(strstr(out.data, "Net&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert_non_null(strstr(out.data, "&lt;img src=x onerror=alert(1)&gt;"));
    assert_null(strchr(out.data, '\033'));
    /* The page loads nothing from elsewhere. */
    assert_null(strstr(out.data, "://"));
    assert_null(strstr(out.data, "url(h"));
    assert_null(strstr(out.data, "src=\""));
    assert_null(strstr(out.data, "@import"));
    assert_non_null(strstr(out.data, "Content-Security-Policy\" content=\"default-src 'none'"));
    /* The card has what a reader looks for. */
    static const char *const words[] = {"Step <b>evaluate</b> failed: ValueError",
                                        "<b>3 / 6</b><span>steps succeeded</span>",
                                        "2 CPU, 4 GB, 1 GPU",
                                        "prefers-color-scheme:dark",
                                        "digits-net",
                                        "version 3",
                                        "Traceback (most recent call last)",
                                        "this machine has none",
                                        "from run 20261120-090000-aaaa",
                                        "code of &#39;train&#39; changed",
                                        "class=\"graph",
                                        "class=\"timeline\""};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strstr(out.data, words[i]) == NULL) {
            fail_msg("the card doesn't say: %s", words[i]);
        }
    }
    stk_case_done(&c);
}

static void test_curves(void **state)
{
    (void)state;
    char store[] = "/tmp/stk_show_XXXXXX";
    assert_non_null(mkdtemp(store));
    stk_show_case c;
    stk_err err = {0};
    stk_case_mixed(&c, store);
    STK_BUF_AUTO path = STK_BUF_INIT(4096);
    stk_buf_printf(&path, "%s/runs/20261121-130501-7f3a/train/0/2", store);
    assert_int_equal(stk_file_mkdirs(path.data, 0755, &err), 0);
    stk_buf_text(&path, "/samples.bin");
    const char *uuids[] = {"GPU-1", "GPU-2"};
    int fd;
    assert_int_equal(stk_samples_create(path.data, stk_case_ms(0), 2, uuids, &fd, &err), 0);
    for (int i = 1; i <= 1000; i++) {
        stk_sample_device devices[2] = {STK_SAMPLE_DEVICE_UNKNOWN, STK_SAMPLE_DEVICE_UNKNOWN};
        devices[0].memory_bytes = 1000000 * i;
        devices[0].busy_percent = 50;
        devices[1].busy_percent = 0;
        stk_sample sample = {i * 10, 1000000 + (i == 777 ? 900000000 : 0), i * 20000, devices, -1,
                             -1};
        assert_int_equal(stk_samples_append(fd, &sample, 2), 0);
    }
    close(fd);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    assert_non_null(strstr(out.data, "peak 901 MB of 4 GB")); /* one sample of 1,000 is not lost */
    assert_non_null(strstr(out.data, "peak 2.0 CPU"));
    assert_non_null(strstr(out.data, "GPU 0 memory"));
    assert_non_null(strstr(out.data, ">peak 50 %<"));
    /* A device that was never busy has a curve; unknown values have none. */
    assert_non_null(strstr(out.data, ">GPU 1 busy<"));
    assert_non_null(strstr(out.data, ">peak 0 %<"));
    assert_null(strstr(out.data, ">GPU 1 memory<"));
    /* A damaged samples file costs only its curves. */
    assert_int_equal(stk_file_write(path.data, "nonsense", 8, 0644, &err), 0);
    stk_buf_clear(&out);
    make_card(&c, &out);
    assert_null(strstr(out.data, "GPU 0 memory"));
    char *card = NULL;
    assert_int_equal(stk_html_write_card(c.view, NULL, stk_case_ms(60000), &card, &err), 0);
    assert_true(stk_file_exists(card));
    free(card);
    stk_case_done(&c);
    assert_int_equal(stk_file_remove_tree(store, &err), 0);
}

static void test_many(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_many(&c, 20000);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    assert_true(out.len < 1000000);
    assert_non_null(strstr(out.data, "similar ones are drawn as one box"));
    assert_non_null(strstr(out.data, "and 19,500 more steps"));
    stk_case_done(&c);
}

static void test_empty(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_new(&c, "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\"}}}", NULL);
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    make_card(&c, &out); /* before its first event */
    stk_case_well_formed(out.data);
    stk_case_done(&c);
}

/* --- layout --- */

static uint32_t next_random(uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    return *seed >> 8;
}

/* Random graphs: edges go forward, nodes of a layer keep their distance, routes end at nodes. */
static void check_layout(uint32_t n, uint32_t n_edges, uint32_t seed)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_graph_edge *edges = stk_arena_array(arena, n_edges + 1, sizeof *edges);
    for (uint32_t i = 0; i < n_edges; i++) {
        uint32_t a = next_random(&seed) % n, b = next_random(&seed) % n;
        edges[i] = (stk_graph_edge){MIN(a, b), a < b ? b : a == b ? (a + 1) % n : a};
        if (edges[i].from > edges[i].to) {
            edges[i] = (stk_graph_edge){edges[i].to, edges[i].from};
        }
    }
    stk_graph_layout layout;
    stk_err err = {0};
    assert_int_equal(stk_graph_place(n, edges, n_edges, 60, 20, arena, &layout, &err), 0);
    for (uint32_t i = 0; i < n_edges; i++) {
        const stk_graph_route *route = &layout.routes[i];
        assert_true(layout.layer[edges[i].from] < layout.layer[edges[i].to]);
        assert_int_equal(route->n, layout.layer[edges[i].to] - layout.layer[edges[i].from] + 1);
        assert_true(route->cross[0] == layout.cross[edges[i].from]);
        assert_true(route->cross[route->n - 1] == layout.cross[edges[i].to]);
    }
    for (uint32_t a = 0; a < n; a++) {
        assert_true(layout.cross[a] >= -0.01 && layout.cross[a] <= layout.extent + 0.01);
        for (uint32_t b = a + 1; b < n; b++) {
            double gap = layout.cross[a] - layout.cross[b];
            assert_true(layout.layer[a] != layout.layer[b] || gap > 39.9 || gap < -39.9);
        }
    }
}

static void test_layout(void **state)
{
    (void)state;
    for (uint32_t seed = 1; seed <= 40; seed++) {
        check_layout(2 + seed % 30, seed % 50, seed);
    }
    /* The picture of a tree has no crossings: children of one parent stay together. */
    const stk_graph_edge tree[] = {{0, 1}, {0, 2}, {1, 3}, {2, 4}, {1, 5}, {2, 6}};
    STK_ARENA_AUTO arena = stk_arena_new(0);
    stk_graph_layout layout;
    assert_int_equal(stk_graph_place(7, tree, 6, 60, 20, arena, &layout, NULL), 0);
    bool left = layout.cross[1] < layout.cross[2];
    for (uint32_t a = 3; a <= 5; a += 2) {
        for (uint32_t b = 4; b <= 6; b += 2) {
            assert_true((layout.cross[a] < layout.cross[b]) == left);
        }
    }
    assert_true(layout.cross[0] == (layout.cross[1] + layout.cross[2]) / 2);
    /* Limits: a graph too large for a picture is an error; a cycle does no harm. */
    const stk_graph_edge circle[] = {{0, 1}, {1, 2}, {2, 1}};
    assert_int_equal(stk_graph_place(3, circle, 3, 60, 20, arena, &layout, NULL), 0);
    assert_int_equal(stk_graph_place(4001, NULL, 0, 60, 20, arena, &layout, NULL), STK_E_LIMIT);
    assert_int_equal(stk_graph_place(4000, NULL, 0, 60, 20, arena, &layout, NULL), 0);
}

/* A growing run: boxes are steps with their tasks counted, similar artifacts share a row. */
static void test_grown(void **state)
{
    (void)state;
    stk_show_case c;
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    stk_case_flow(&c, "/s", 1200);
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    assert_non_null(strstr(out.data, "1,199 succeeded, 1 cached</title>"));
    assert_non_null(strstr(out.data, ">×1,200</text>")); /* on the edge of the foreach */
    assert_non_null(strstr(out.data, ">yes</text>"));    /* on the edge of a case */
    assert_non_null(strstr(out.data, "good: not reached</title>"));
    assert_non_null(strstr(out.data, "Step <b>bad/1203</b> failed: exit status 3"));
    assert_non_null(strstr(out.data, "part</b> <span class=\"dim\">×1,199</span>"));
    assert_non_null(strstr(out.data, "and 700 more: <code>stoker show"));
    assert_non_null(strstr(out.data, "×1,200, "));
    assert_true(out.len < 200000);
    stk_case_done(&c);
    stk_buf_clear(&out);
    stk_case_gang(&c, "/s");
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    assert_non_null(strstr(out.data, ">2 ranks</text>"));
    stk_case_done(&c);
    stk_buf_clear(&out);
    stk_case_nested(&c, "/s");
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    stk_case_done(&c);
}

/* A loop to the same step and a loop further back: the card draws the edges that lead back, and the
 * other edges make layers. */
static void test_loop(void **state)
{
    (void)state;
    static const char spec[] =
        "{\"stoker\":1,\"name\":\"loop\",\"steps\":{\"start\":{\"run\":\"true\",\"next\":\"body\"},"
        "\"body\":{\"run\":\"true\",\"outputs\":[\"more\"],\"switch\":\"more\","
        "\"cases\":{\"again\":\"body\",\"on\":\"look\"}},"
        "\"look\":{\"run\":\"true\",\"outputs\":[\"more\"],\"switch\":\"more\","
        "\"cases\":{\"back\":\"body\",\"done\":\"end\"}},\"end\":{\"run\":\"true\"}}}";
    stk_show_case c;
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    stk_case_new(&c, spec, "/s");
    make_card(&c, &out); /* before its first task */
    stk_case_well_formed(out.data);
    stk_case_feed(&c, STK_EV_TASK_ADDED, 0, 0, 1, "{\"step\":\"start\",\"n\":1,\"deps\":[]}");
    stk_buf_clear(&out);
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    assert_int_equal(n_times(out.data, "class=\"edge maybe\""), 4);
    assert_int_equal(n_times(out.data, "class=\"edge\""), 1);
    assert_non_null(strstr(out.data, ">again</text>"));
    assert_non_null(strstr(out.data, ">back</text>"));
    stk_case_done(&c);
}

/* A device whose model isn't text, or has a zero byte, has no name. */
static void test_devices(void **state)
{
    (void)state;
    stk_show_case c;
    stk_case_new(&c, "{\"stoker\":1,\"name\":\"p\",\"steps\":{\"a\":{\"run\":\"true\"}}}", NULL);
    stk_case_feed(
        &c, STK_EV_RUN_CREATED, UINT32_MAX, 0, 0,
        "{\"name\":\"n\",\"pipeline\":\"p\",\"spec\":\"d\",\"parameters\":{\"x\":\"a\\u0000b\"},"
        "\"mode\":\"fail_fast\",\"policy\":\"fit\",\"origin\":{},\"host\":{\"name\":\"w1\","
        "\"cpus\":8,\"memory_bytes\":32000000000,\"devices\":[\"L4\",\"L4\",\"a\\u0000b\",7]},"
        "\"notes\":[]}");
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 24);
    make_card(&c, &out);
    stk_case_well_formed(out.data);
    assert_non_null(strstr(out.data, "2 × L4, unknown device, unknown device"));
    stk_case_done(&c);
}

int main(void)
{
    setenv("TZ", "UTC", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_card),  cmocka_unit_test(test_curves),  cmocka_unit_test(test_many),
        cmocka_unit_test(test_empty), cmocka_unit_test(test_layout),  cmocka_unit_test(test_grown),
        cmocka_unit_test(test_loop),  cmocka_unit_test(test_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
