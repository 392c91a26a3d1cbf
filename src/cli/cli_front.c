#include "cli/cli_front.h"

#include "base/json.h"
#include "sys/file.h"

static void send_line(int fd, stk_buf *line)
{
    stk_json_close(line, '}');
    stk_buf_char(line, '\n');
    if (fd >= 0 && !line->failed) {
        (void)stk_file_write_all(fd, line->data, line->len);
    }
    stk_buf_done(line);
}

static stk_buf begin_line(const char *event)
{
    stk_buf line = STK_BUF_INIT(1u << 20);
    stk_json_open(&line, NULL, '{');
    stk_json_put_text(&line, "event", event);
    return line;
}

void stk_cli_front_begin(int fd, const stk_run *run)
{
    stk_buf line = begin_line("run");
    stk_json_put_text(&line, "run", stk_run_id(run));
    stk_json_put_text(&line, "store", stk_store_path(stk_run_store(run)));
    send_line(fd, &line);
}

void stk_cli_front_signal(int fd, uint32_t n)
{
    stk_buf line = begin_line("interrupted");
    stk_json_put_whole(&line, "times", n);
    send_line(fd, &line);
}

static stk_buf begin_end(const stk_run *run, const char *status, const char *error)
{
    stk_buf line = begin_line("end");
    stk_json_put_text(&line, "run", run == NULL ? NULL : stk_run_id(run));
    stk_json_put_text(&line, "status", status);
    stk_json_put_text(&line, "error", error);
    return line;
}

void stk_cli_front_end(int fd, const stk_run *run, const char *status, const char *error)
{
    stk_buf line = begin_end(run, status, error);
    send_line(fd, &line);
}

void stk_cli_front_refuse(int fd, const stk_run *run, const stk_err *err)
{
    char text[1400];
    stk_buf line = begin_end(run, "failed", stk_err_format(err, text, (int)sizeof text));
    stk_json_put_text(&line, "class", stk_err_word(err->code));
    stk_json_put_text(&line, "hint", err->hint);
    send_line(fd, &line);
}
