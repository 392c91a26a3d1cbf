#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "away/link/link.h"
#include "away/link/link_private.h"
#include "away/link/link_testing.h"
#include "base/testing.h"
#include "sys/clock.h"
#include "sys/file.h"

static char dir[64];

static const char *in(const char *name)
{
    static char paths[4][256];
    static int next;
    char *path = paths[next++ % 4];
    (void)snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static void write_program(const char *path, const char *text)
{
    stk_err err = {0};
    assert_int_equal(stk_file_write(path, text, strlen(text), 0755, &err), 0);
}

static int set_up(void **state)
{
    (void)state;
    (void)snprintf(dir, sizeof dir, "/tmp/stk-link-XXXXXX");
    return mkdtemp(dir) == NULL ? -1 : link_set_up(dir);
}

static int tear_down(void **state)
{
    (void)state;
    return stk_file_remove_tree(dir, NULL);
}

/* --- what the far end of these tests can do --- */

static int echo(const stk_json *ask, const void *body, size_t n, stk_buf *ret, stk_buf *ret_body,
                stk_err *err)
{
    (void)err;
    stk_json_put_whole(ret, "n", stk_json_get_whole(ask, "n", 0));
    (void)stk_buf_add(ret_body, body, n);
    return 0;
}

/* Answers when the file `path` is there. */
static int wait_for(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                    stk_buf *ret_body, stk_err *err)
{
    (void)body, (void)n, (void)ret, (void)ret_body, (void)err;
    while (!stk_file_exists(stk_json_get_text(ask, "path"))) {
        usleep(2000);
    }
    return 0;
}

static int refuse(const stk_json *ask, const void *body, size_t n, stk_buf *ret, stk_buf *ret_body,
                  stk_err *err)
{
    (void)ask, (void)body, (void)n, (void)ret_body;
    stk_json_put_text(ret, "half", "done");
    stk_err_sys(err, STK_E_BUSY, EACCES, "no, \"never\"");
    stk_err_hint(err, "ask again");
    return STK_E_BUSY;
}

static int die(const stk_json *ask, const void *body, size_t n, stk_buf *ret, stk_buf *ret_body,
               stk_err *err)
{
    (void)ask, (void)body, (void)n, (void)ret, (void)ret_body, (void)err;
    fprintf(stderr, "the far end says farewell\n");
    _exit(9);
}

static int overflow(const stk_json *ask, const void *body, size_t n, stk_buf *ret,
                    stk_buf *ret_body, stk_err *err)
{
    (void)ask, (void)body, (void)n, (void)ret, (void)err;
    char part[4096] = {0};
    while (stk_buf_add(ret_body, part, sizeof part) == 0) {
    }
    return 0;
}

static int serve_far(void)
{
    static const stk_link_op ops[] = {{"echo", echo}, {"wait", wait_for},     {"refuse", refuse},
                                      {"die", die},   {"overflow", overflow}, {NULL, NULL}};
    static const stk_link_op *const tables[] = {ops, NULL};
    stk_err err = {0};
    return stk_link_serve(STDIN_FILENO, STDOUT_FILENO, tables, &err) < 0;
}

/* --- asking --- */

static stk_link *open_link(const char *host)
{
    stk_link *link = NULL;
    stk_err err = {0};
    assert_int_equal(stk_link_open(host, &link, &err), 0);
    return link;
}

static int ask_for(stk_link *link, const char *head, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    const stk_link_ask ask = {.head = head, .cancel_fd = -1};
    return stk_link_call(link, &ask, arena, NULL, NULL, err);
}

static void ask_well(stk_link *link)
{
    stk_err err = {0};
    if (ask_for(link, "{\"op\":\"echo\"}", &err) < 0) {
        fail_msg("%s", err.text);
    }
}

static size_t n_started(void)
{
    char *data = NULL;
    size_t n = 0;
    if (stk_file_read(in("started"), 4096, &data, &n, NULL) < 0) {
        return 0;
    }
    free(data);
    return n / 2;
}

static void test_hosts(void **state)
{
    (void)state;
    static const char *const bad[] = {"", "-oProxyCommand=x", "a b", "a\nb", "a\x7f"};
    stk_link *link = NULL;
    stk_err err = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(stk_link_open(bad[i], &link, &err), STK_E_USAGE);
    }
    link = open_link("ann@gpu1");
    stk_link *same = open_link("ann@gpu1");
    stk_link *other = open_link("gpu1");
    assert_ptr_equal(link, same);
    assert_ptr_not_equal(link, other);
    assert_string_equal(stk_link_host(link), "ann@gpu1");
    stk_link_close(link);
    stk_link_close(same);
    stk_link_close(other);
}

/* The program is brought once; later connections find it. */
static void test_bring(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        stk_link *link = open_link("h");
        assert_int_equal(stk_link_round(link), 0);
        ask_well(link);
        ask_well(link);
        assert_int_equal(stk_link_round(link), 1);
        assert_int_equal(n_started(), i + 1);
        stk_link_close(link);
        char path[200];
        struct stat st;
        (void)snprintf(path, sizeof path, "%s/cache/stoker/far/%s/bin/ld.so", dir, link_digest);
        assert_int_equal(stat(path, &st), 0);
        (void)snprintf(link_archive, sizeof link_archive,
                       "/dev/null"); /* nobody asks for it again */
    }
}

/* --- many at once --- */

enum { CALLERS = 16, CALLS = 60 };

typedef struct caller {
    stk_link *link;
    uint32_t i;
    char wrong[200];
} caller;

static bool is_answer(const stk_json *head, const stk_buf *body, uint32_t number, size_t n)
{
    if (stk_json_get_whole(head, "n", -1) != number || body->len != n) {
        return false;
    }
    for (size_t i = 0; i < n; i++) {
        if (body->data[i] != (char)(number + i)) {
            return false;
        }
    }
    return true;
}

static void *call_often(void *arg)
{
    caller *c = arg;
    char *data = malloc(STK_LINK_BODY_MAX);
    for (uint32_t i = 0; i < CALLS && data != NULL && c->wrong[0] == '\0'; i++) {
        STK_ARENA_AUTO arena = stk_arena_new(0);
        STK_BUF_AUTO body = STK_BUF_INIT(STK_LINK_BODY_MAX);
        uint32_t number = c->i * CALLS + i;
        size_t n = i % 20 == 0 ? STK_LINK_BODY_MAX : (number * 7919u) % 100000u;
        stk_json head = {0};
        stk_err err = {0};
        char text[64];
        for (size_t k = 0; k < n; k++) {
            data[k] = (char)(number + k);
        }
        (void)snprintf(text, sizeof text, "{\"op\":\"echo\",\"n\":%u}", number);
        const stk_link_ask ask = {.head = text, .body = data, .n = n, .cancel_fd = -1};
        if (stk_link_call(c->link, &ask, arena, &head, &body, &err) < 0) {
            (void)snprintf(c->wrong, sizeof c->wrong, "%.150s", err.text);
        } else if (!is_answer(&head, &body, number, n)) {
            (void)snprintf(c->wrong, sizeof c->wrong, "answer %u is another's", number);
        }
    }
    free(data);
    return NULL;
}

static void test_many(void **state)
{
    (void)state;
    stk_link *link = open_link("h");
    caller callers[CALLERS];
    pthread_t threads[CALLERS];
    for (uint32_t i = 0; i < CALLERS; i++) {
        callers[i] = (caller){.link = link, .i = i};
        assert_int_equal(pthread_create(&threads[i], NULL, call_often, &callers[i]), 0);
    }
    for (uint32_t i = 0; i < CALLERS; i++) {
        (void)pthread_join(threads[i], NULL);
        assert_string_equal(callers[i].wrong, "");
    }
    assert_int_equal(n_started(), 1); /* one connection for all */
    stk_link_close(link);
}

static void *wait_long(void *arg)
{
    char head[200];
    stk_err err = {0};
    (void)snprintf(head, sizeof head, "{\"op\":\"wait\",\"path\":\"%s/go\"}", dir);
    return ask_for(arg, head, &err) == 0 ? NULL : arg;
}

/* Long requests hold up no other. */
static void test_long_ones(void **state)
{
    (void)state;
    pthread_t threads[20];
    void *failed = NULL;
    stk_link *link = open_link("h");
    for (size_t i = 0; i < 20; i++) {
        assert_int_equal(pthread_create(&threads[i], NULL, wait_long, link), 0);
    }
    for (int i = 0; i < 50; i++) {
        ask_well(link);
    }
    write_program(in("go"), "");
    for (size_t i = 0; i < 20; i++) {
        (void)pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    stk_link_close(link);
}

/* --- what goes wrong --- */

static void test_errors_come_back(void **state)
{
    (void)state;
    stk_link *link = open_link("h");
    stk_err err = {0};
    assert_int_equal(ask_for(link, "{\"op\":\"refuse\"}", &err), STK_E_BUSY);
    assert_string_equal(err.text, "no, \"never\": Permission denied");
    assert_string_equal(err.hint, "ask again");
    assert_int_equal(err.sys, EACCES);
    assert_false(stk_link_may_pass(&err));
    assert_int_equal(ask_for(link, "{\"op\":\"dance\"}", &err), STK_E_PROTOCOL);
    assert_non_null(strstr(err.text, "'dance'"));
    assert_int_equal(ask_for(link, "{}", &err), STK_E_PROTOCOL);
    assert_int_equal(ask_for(link, "no json", &err), STK_E_PROTOCOL);
    assert_int_equal(ask_for(link, "{\"op\":\"overflow\"}", &err), STK_E_LIMIT);
    ask_well(link);
    assert_int_equal(stk_link_round(link), 1);
    stk_link_close(link);
}

static void test_cut_in_the_middle(void **state)
{
    (void)state;
    pthread_t waiter;
    void *failed = NULL;
    stk_err err = {0};
    stk_link *link = open_link("h");
    ask_well(link);
    assert_int_equal(pthread_create(&waiter, NULL, wait_long, link), 0);
    assert_int_equal(ask_for(link, "{\"op\":\"die\"}", &err), STK_E_ENV);
    assert_names(err.text, "the connection to 'h' broke: the far end says farewell");
    assert_int_equal(err.sys, ECONNRESET);
    assert_true(stk_link_may_pass(&err));
    (void)pthread_join(waiter, &failed);
    assert_ptr_equal(failed, link); /* nobody waits for ever */
    ask_well(link);                 /* and the next one makes the connection anew */
    assert_int_equal(stk_link_round(link), 2);
    stk_link_close(link);
}

static void test_cancel_and_time(void **state)
{
    (void)state;
    STK_ARENA_AUTO arena = stk_arena_new(0);
    char head[200];
    stk_err err = {0};
    stk_link *link = open_link("h");
    (void)snprintf(head, sizeof head, "{\"op\":\"wait\",\"path\":\"%s/never\"}", dir);
    stk_link_ask ask = {.head = head, .cancel_fd = -1, .timeout_ms = 100};
    assert_int_equal(stk_link_call(link, &ask, arena, NULL, NULL, &err), STK_E_ENV);
    assert_names(err.text, "'h' didn't answer within …");
    assert_int_equal(err.sys, ETIMEDOUT);
    assert_true(stk_link_may_pass(&err));
    ask.timeout_ms = 0;
    ask.limit_ms = 100;
    assert_int_equal(stk_link_call(link, &ask, arena, NULL, NULL, &err), STK_E_ENV);
    assert_int_equal(err.sys, ETIMEDOUT);
    ask.limit_ms = 0;
    ask.cancel_fd = eventfd(1, EFD_CLOEXEC);
    assert_int_equal(stk_link_call(link, &ask, arena, NULL, NULL, &err), STK_E_CANCELLED);
    ask_well(link);
    assert_int_equal(stk_link_round(link), 1);
    (void)close(ask.cancel_fd);
    write_program(in("never"), "");
    stk_link_close(link);
}

/* --- what hosts are like --- */

/* The stand-in for ssh in place of the usual one. */
static void set_ssh(const char *text)
{
    write_program(in("other"), text);
    (void)setenv("STOKER_SSH", in("other"), 1);
}

#define NO_CONFIG "for word; do test \"$word\" != -G || exit 0; done\n"

static void test_greetings(void **state)
{
    (void)state;
    set_ssh("#!/bin/sh\n" NO_CONFIG "seq 20000; seq 20000 >&2; printf 'welcome '\n"
            "exec /bin/sh -c \"$word\"\n");
    stk_link *link = open_link("h");
    ask_well(link);
    stk_link_close(link);
    link = open_link("h");
    set_ssh("#!/bin/sh\n" NO_CONFIG "exec yes\n");
    stk_err err = {0};
    assert_int_equal(ask_for(link, "{\"op\":\"echo\"}", &err), STK_E_ENV);
    assert_names(err.text, "the shell of 'h' prints without end…");
    stk_link_close(link);
}

static void test_other_version(void **state)
{
    (void)state;
    link_make_archive(dir, "#!/bin/sh\necho stoker-far 7\nexec cat\n");
    stk_link *link = open_link("h");
    stk_err err = {0};
    assert_int_equal(ask_for(link, "{\"op\":\"echo\"}", &err), STK_E_VERSION);
    assert_names(err.text, "the Stoker on 'h' speaks version 7…");
    stk_link_close(link);
}

/* After its line, something that isn't a message. */
static void test_garbage(void **state)
{
    (void)state;
    link_make_archive(dir, "#!/bin/sh\necho stoker-far 1\nexec seq 1000\n");
    stk_link *link = open_link("h");
    stk_err err = {0};
    assert_int_equal(ask_for(link, "{\"op\":\"echo\"}", &err), STK_E_PROTOCOL);
    assert_false(stk_link_may_pass(&err));
    stk_link_close(link);
}

static void test_what_ssh_says(void **state)
{
    (void)state;
    static const struct {
        const char *script;
        int code, sys;
        bool may_pass;
        const char *text;
    } cases[] = {
        {"echo 'Host key verification failed.' >&2; exit 255", STK_E_UNTRUSTED, 0, false,
         "the host key of 'h' isn't known here"},
        {"echo '@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @' >&2\n"
         "echo 'Offending ED25519 key in /home/ann/.ssh/known_hosts:3' >&2\n"
         "echo 'Host key verification failed.' >&2; exit 255",
         STK_E_UNTRUSTED, 0, false,
         "the host key of 'h' has changed…(the known one is in /home/ann/.ssh/known_hosts:3)"},
        {"echo 'ann@h: Permission denied (publickey,password).' >&2; exit 255", STK_E_ENV, EACCES,
         false, "'h' doesn't let us in: ann@h: Permission denied (publickey,password)."},
        {"echo 'ssh: Could not resolve hostname h: Name or service not known' >&2; exit 255",
         STK_E_ENV, ENXIO, false, "there is no host 'h': …"},
        {"echo 'ssh: connect to host h port 22: No route to host' >&2; exit 255", STK_E_ENV,
         ENOTCONN, true, "can't reach 'h': ssh: connect to host h port 22: No route to host"},
        {"exit 255", STK_E_ENV, ENOTCONN, true, "can't reach 'h': ssh ended without a word"},
        {"kill -9 $$", STK_E_ENV, ENOTCONN, true, "can't reach 'h': ssh ended without a word"},
        {"echo stoker-is Linux s390x", STK_E_ENV, ENOEXEC, false,
         "'h' is a machine of another kind (Linux s390x)…"},
        {"echo stoker-lacks tar", STK_E_ENV, ENOEXEC, false, "'h' has no 'tar'…"},
        {"echo 'tar: x: Cannot write: No space left on device' >&2; exit 2", STK_E_FULL, 0, false,
         "'h' has no room for Stoker…Cannot write…"},
        {"echo 'sh: 1: /x/ld.so: Permission denied' >&2; exit 126", STK_E_ENV, ENOEXEC, false,
         "'h' can't run Stoker (exit status 126): sh: 1: /x/ld.so: Permission denied"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char script[600];
        stk_err err = {0};
        (void)snprintf(script, sizeof script, "#!/bin/sh\n" NO_CONFIG "%s\n", cases[i].script);
        set_ssh(script);
        stk_link *link = open_link("h");
        assert_int_equal(ask_for(link, "{\"op\":\"echo\"}", &err), cases[i].code);
        assert_names(err.text, cases[i].text);
        assert_int_equal(err.sys, cases[i].sys);
        assert_int_equal(stk_link_may_pass(&err), cases[i].may_pass);
        stk_link_close(link);
    }
    (void)setenv("STOKER_SSH", in("none"), 1);
    stk_link *link = open_link("h");
    stk_err err = {0};
    assert_int_equal(ask_for(link, "{\"op\":\"echo\"}", &err), STK_E_ENV);
    assert_names(err.text, "can't start '…/none': No such file or directory");
    assert_false(stk_link_may_pass(&err));
    stk_link_close(link);
}

/* An archive that ends too early is never taken for the program. */
static void test_cut_while_it_is_brought(void **state)
{
    (void)state;
    char path[200];
    stk_err err = {0};
    set_ssh("#!/bin/sh\n" NO_CONFIG "head -c 3000 | /bin/sh -c \"$word\"; exit 255\n");
    stk_link *link = open_link("h");
    assert_int_equal(ask_for(link, "{\"op\":\"echo\"}", &err), STK_E_ENV);
    (void)snprintf(path, sizeof path, "%s/cache/stoker/far/%s", dir, link_digest);
    assert_false(stk_file_exists(path));
    (void)setenv("STOKER_SSH", in("ssh"), 1);
    ask_well(link);
    assert_true(stk_file_exists(path));
    stk_link_close(link);
}

/* Where the user's configuration turns the check of host keys off, it is on all the same. */
static void test_keys_are_checked(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        bool accepts_new, own_list;
    } cases[] = {{"stricthostkeychecking ask", false, false},
                 {"stricthostkeychecking true", false, false},
                 {"stricthostkeychecking false", true, false},
                 {"stricthostkeychecking false\\nuserknownhostsfile /dev/null", true, true},
                 {"userknownhostsfile /dev/nullary", false, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char script[600];
        char *data = NULL;
        size_t n = 0;
        (void)snprintf(script, sizeof script,
                       "#!/bin/sh\nfor word; do if test \"$word\" = -G; then\n"
                       "printf 'user ann\\n%s\\n'; exit 0; fi; done\n"
                       "echo \"$@\" > \"$LINK_TEST/words\"\nexec /bin/sh -c \"$word\"\n",
                       cases[i].config);
        set_ssh(script);
        stk_link *link = open_link("h");
        ask_well(link);
        stk_link_close(link);
        assert_int_equal(stk_file_read(in("words"), 1 << 16, &data, &n, NULL), 0);
        assert_non_null(strstr(data, "-oBatchMode=yes"));
        assert_int_equal(strstr(data, "StrictHostKeyChecking=accept-new") != NULL,
                         cases[i].accepts_new);
        assert_int_equal(strstr(data, "/.ssh/known_hosts") != NULL, cases[i].own_list);
        free(data);
    }
}

#define T(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        T(test_hosts),
        T(test_bring),
        T(test_many),
        T(test_long_ones),
        T(test_errors_come_back),
        T(test_cut_in_the_middle),
        T(test_cancel_and_time),
        T(test_greetings),
        T(test_other_version),
        T(test_garbage),
        T(test_what_ssh_says),
        T(test_cut_while_it_is_brought),
        T(test_keys_are_checked),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    if (argc > 1 && strcmp(argv[1], "--far") == 0) {
        return serve_far();
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
