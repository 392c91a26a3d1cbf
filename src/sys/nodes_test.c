/* The file that lists nodes: what it may contain, and the errors in it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/testing.h"
#include "sys/file.h"
#include "sys/nodes.h"

static void test_read(void **state)
{
    (void)state;
    static const struct {
        const char *text; /* NULL: no file */
        uint32_t n;
        const char *error; /* part of the error, or NULL */
    } cases[] = {
        {NULL, 0, NULL},
        {"", 0, NULL},
        {"# none\n\n", 0, NULL},
        {"10.0.0.1", 0, NULL},
        {"10.0.0.1 # here\n\n ws2\tssh -o BatchMode=yes ws2 \r\nn3 ip netns exec n3", 2, NULL},
        {"10.0.0.1 ssh a\n", 0, "…:1: … first line … address…"},
        {"10.0.0.1\n\nws2\n", 0, "…:3: … 'ws2' … shell there, like: ws2 ssh ws2"},
    };
    char path[] = "/tmp/stk-nodes-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(setenv("STOKER_NODES", path, 1), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        stk_nodes nodes = {0};
        stk_err err = {0};
        (void)unlink(path);
        if (cases[i].text != NULL) {
            assert_int_equal(stk_file_write(path, cases[i].text, strlen(cases[i].text), 0600, NULL),
                             0);
        }
        int rc = stk_nodes_read(arena, &nodes, &err);
        if (cases[i].error != NULL) {
            assert_int_equal(rc, STK_E_SPEC);
            assert_names(err.text, cases[i].error);
            continue;
        }
        assert_int_equal(rc, 0);
        assert_int_equal(nodes.n_others, cases[i].n);
        if (cases[i].n == 2) {
            assert_string_equal(nodes.address, "10.0.0.1");
            assert_string_equal(nodes.others[0].name, "ws2");
            assert_string_equal(nodes.others[0].words[3], "ws2");
            assert_null(nodes.others[0].words[4]);
            assert_string_equal(nodes.others[1].words[0], "ip");
        }
    }
    (void)unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_read)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
