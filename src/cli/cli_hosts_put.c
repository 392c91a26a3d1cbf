/* The pictures of all hosts, one below the other. */
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_hosts_private.h"
#include "cli/cli_read.h"
#include "sys/clock.h"

const char *stk_hosts_say_away(const stk_seat *s, char *buf, size_t size)
{
    int64_t age_ms = stk_clock_mono_ms(&stk_clock_real) - s->heard_ms;
    if (s->why.code != 0) {
        return s->why.text;
    }
    if (s->answered == 0 && s->all->look->n_times == 1) {
        (void)snprintf(buf, size, "no answer within %d s", ONLY_MS / 1000);
        return buf;
    }
    if (s->answered == 0) {
        return "no answer yet";
    }
    if (s->answered == s->wanted || age_ms < FRESH_MS) {
        return NULL;
    }
    (void)snprintf(buf, size, "no answer for %lld s", (long long)age_ms / 1000);
    return buf;
}

static void put_text(const stk_seat *s, const char *away, const stk_style *style, stk_buf *out)
{
    stk_text_ink(out, style, STK_INK_BOLD, s->name);
    if (away != NULL) {
        stk_buf_text(out, ": ");
        stk_text_safe(out, away, "");
        stk_buf_char(out, '\n');
        return;
    }
    stk_buf_printf(out, "\n%s", stk_text_or(s->text.data, ""));
}

static void put_host_lines(const stk_seat *s, const char *away, stk_buf *out)
{
    if (away != NULL) {
        stk_buf_printf(out, "%s  ", s->name);
        stk_text_safe(out, away, "");
        stk_buf_char(out, '\n');
    }
    for (const char *at = away == NULL ? s->text.data : NULL; at != NULL && *at != '\0';) {
        size_t n = strcspn(at, "\n");
        stk_buf_printf(out, "%s  %.*s\n", s->name, (int)n, at);
        at += n + (at[n] == '\n');
    }
}

static void put_json(const stk_hosts *h, stk_seat *s, const char *away, stk_buf *out)
{
    const char *picture = NULL;
    if (away == NULL && s->text.data != NULL) {
        s->text.data[strcspn(s->text.data, "\n")] = '\0';
        picture = s->text.data;
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "host", s->name);
    stk_json_put_text(out, "away", away);
    stk_json_put_raw(out, h->look->op, picture);
    stk_json_close(out, '}');
}

void stk_hosts_put(stk_hosts *h, stk_buf *out)
{
    const stk_style style = stk_cli_style(stdout);
    bool is_json = strcmp(h->look->form, "json") == 0;
    bool is_lines = strcmp(h->look->form, "lines") == 0;
    char buf[64];
    if (is_json) {
        stk_json_open(out, NULL, '{');
        stk_json_put_text(out, "stack", h->stack);
        stk_json_open(out, "hosts", '[');
    }
    for (uint32_t i = 0; i < h->n; i++) {
        const char *away = stk_hosts_say_away(&h->seats[i], buf, sizeof buf);
        h->has_heard = h->has_heard || away == NULL;
        if (is_json) {
            put_json(h, &h->seats[i], away, out);
        } else if (is_lines) {
            put_host_lines(&h->seats[i], away, out);
        } else {
            stk_buf_text(out, stk_text_when(i > 0, "\n"));
            put_text(&h->seats[i], away, &style, out);
        }
    }
    if (is_json) {
        stk_json_close(out, ']');
        stk_json_close(out, '}');
        stk_buf_char(out, '\n');
    }
}

void stk_hosts_put_screen(const stk_seat *seat, const stk_style *style, int rows, stk_buf *out)
{
    char buf[64];
    const char *away = stk_hosts_say_away(seat, buf, sizeof buf);
    const char *at = stk_text_or(seat->text.data, "");
    seat->all->has_heard = seat->all->has_heard || away == NULL;
    if (away != NULL) {
        stk_buf_text(out, "  ");
        stk_text_fit(out, away, style->columns - 2, false, style->utf8);
        at = "";
    }
    for (int row = 0; row < rows; row++) {
        size_t n = strcspn(at, "\n");
        stk_buf_add(out, at, n);
        stk_buf_char(out, '\n');
        at += n + (at[n] == '\n');
    }
}
