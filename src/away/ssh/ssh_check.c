/* Tries the hosts of a stack: can each be reached, and has it what a job needs? */
#include <stdio.h>
#include <string.h>

#include "away/ssh/ssh_private.h"
#include "base/text.h"
#include "base/units.h"

enum { CHECK_MS = 60000 };

#define LITTLE_ROOM (1ll << 30)

typedef struct checker {
    const stk_driver_config *config;
    void (*say)(void *arg, bool is_good, const char *text);
    void *arg;
    stk_arena *arena;
    stk_remote_options options;
    stk_err *err;
    int rc;
} checker;

/* The first obstacle is the error. */
static void tell(checker *c, bool is_good, const char *host, const char *text)
{
    const char *line = stk_arena_printf(c->arena, "%s: %s", host, text);
    c->say(c->arg, is_good, stk_text_or(line, text));
    if (!is_good && c->rc == 0) {
        c->rc = stk_err_set(c->err, STK_E_ENV, "%s", stk_text_or(line, text));
    }
}

static const char *question(const checker *c, const char *host)
{
    STK_BUF_AUTO out = STK_BUF_INIT(8192);
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "op", "ssh.host");
    stk_json_put_text(&out, "host", host);
    stk_json_put_bool(&out, "all", true);
    stk_json_put_text(&out, "python",
                      stk_text_or(stk_remote_option_text(&c->options, "python"), "python3"));
    stk_json_put_text(&out, "store", stk_text_or(stk_ssh_store_path(c->config->share_url), "~/"));
    stk_json_close(&out, '}');
    return stk_buf_keep(&out, c->arena);
}

static int ask_host(const checker *c, const char *host, stk_json *ret, stk_err *err)
{
    stk_link *link = NULL;
    const char *head = question(c, host);
    STK_TRY(stk_err_if_null(head, err));
    STK_TRY(stk_link_open(host, &link, err));
    const stk_link_ask ask = {.head = head, .cancel_fd = -1, .timeout_ms = CHECK_MS};
    int rc = stk_link_call(link, &ask, c->arena, ret, NULL, err);
    stk_link_close(link);
    return rc;
}

/* "reached and has this program: gpu1, Linux 6.1 on x86_64, 16 CPUs, 64 GB; no devices" */
static void say_machine(checker *c, const char *host, const stk_json *said)
{
    char memory[32], text[900];
    (void)stk_units_format_memory(stk_json_get_whole(said, "memory_bytes", 0), memory,
                                  sizeof memory);
    (void)snprintf(text, sizeof text, "reached, and has this program: %s, Linux %s, %g CPUs, %s",
                   stk_text_or(stk_json_get_text(said, "node"), "?"),
                   stk_text_or(stk_json_get_text(said, "kernel"), "?"),
                   (double)stk_json_get_whole(said, "cpu_milli", 0) / 1000, memory);
    tell(c, true, host, text);
    tell(c, true, host, stk_text_or(stk_json_get_text(said, "accel"), "no devices"));
}

static void say_room(checker *c, const char *host, const stk_json *said)
{
    char room[32], text[200];
    int64_t bytes = stk_json_get_whole(said, "free_disk_bytes", -1);
    if (bytes < 0) {
        return;
    }
    (void)stk_units_format_memory(bytes, room, sizeof room);
    (void)snprintf(text, sizeof text, "%s free where its store is", room);
    tell(c, bytes >= LITTLE_ROOM, host, text);
}

static void check_host(checker *c, const char *host)
{
    stk_json said = {0};
    stk_err why = {0};
    char text[1200];
    if (ask_host(c, host, &said, &why) < 0) {
        tell(c, false, host, stk_err_format(&why, text, (int)sizeof text));
        return;
    }
    say_machine(c, host, &said);
    const char *python = stk_text_or(stk_json_get_text(&said, "python"), "it said nothing");
    bool has_python = stk_json_is_true(stk_json_get(&said, "has_python"));
    (void)snprintf(text, sizeof text, "%sPython%s: %s", stk_text_when(!has_python, "no "),
                   stk_text_when(!has_python, " for steps"), python);
    tell(c, has_python, host, text);
    say_room(c, host, &said);
    if (!stk_json_is_true(stk_json_get(&said, "views"))) {
        tell(c, false, host,
             "its kernel doesn't let users make user namespaces (user.max_user_namespaces, "
             "kernel.unprivileged_userns_clone), in which a job has the project's folder");
    }
}

int stk_ssh_check(const stk_driver_config *config,
                  void (*say)(void *arg, bool is_good, const char *text), void *arg, stk_err *err)
{
    STK_ARENA_AUTO arena = stk_arena_new(0);
    checker c = {.config = config, .say = say, .arg = arg, .arena = arena, .err = err};
    const stk_json *hosts = NULL;
    STK_TRY(stk_err_if_null(arena, err));
    STK_TRY(
        stk_ssh_options_read(config->stack, NULL, config->options, NULL, arena, &c.options, err));
    uint32_t n = stk_remote_option_texts(&c.options, "hosts", &hosts);
    for (uint32_t i = 0; i < n; i++) {
        check_host(&c, hosts[i].text);
    }
    return c.rc;
}
