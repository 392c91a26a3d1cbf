#include "cli/cli_open.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "sys/file.h"

bool stk_cli_wants_page(const stk_cli *cli)
{
    return stk_cli_value(cli, "html") != NULL || stk_cli_flag(cli, "open");
}

char *stk_cli_temporary_page(stk_err *err)
{
    const char *folder = stk_text_or(stk_text_if_any(getenv("TMPDIR")), "/tmp");
    STK_BUF_AUTO path = STK_BUF_INIT(4096);
    stk_buf_printf(&path, "%s/stoker-XXXXXX.html", folder);
    if (path.failed) {
        (void)stk_err_set(err, STK_E_USAGE, "the path in TMPDIR is too long");
        return NULL;
    }
    int fd = mkostemps(path.data, 5, O_CLOEXEC);
    if (fd < 0) {
        (void)stk_err_sys(err, STK_E_SYS, errno, "no file for the page can be made in %s", folder);
        return NULL;
    }
    (void)close(fd);
    return strdup(path.data);
}

static const char *browser(void)
{
    return stk_text_or(stk_text_if_any(getenv("BROWSER")), "xdg-open");
}

int stk_cli_begin_browser(const char *path, pid_t *ret_pid, stk_err *err)
{
    extern char **environ;
    char *const argv[] = {(char *)(uintptr_t)browser(), (char *)(uintptr_t)path, NULL};
    if (posix_spawnp(ret_pid, argv[0], NULL, NULL, argv, environ) != 0) {
        stk_err_set(err, STK_E_ENV, "'%s' can't show the page %s", browser(), path);
        stk_err_hint(err, "open that file, or set BROWSER to a program that does");
        return err->code;
    }
    return 0;
}

static int show_page(const char *path, stk_err *err)
{
    pid_t pid = 0;
    int status = 0;
    STK_TRY(stk_cli_begin_browser(path, &pid, err));
    if (waitpid(pid, &status, 0) != pid || status != 0) {
        stk_err_set(err, STK_E_ENV, "'%s' can't show the page %s", browser(), path);
        stk_err_hint(err, "open that file, or set BROWSER to a program that does");
        return err->code;
    }
    return 0;
}

int stk_cli_put_page(const stk_cli *cli, const stk_buf *html, stk_buf *out, stk_err *err)
{
    const char *name = stk_cli_value(cli, "html");
    STK_TEXT_AUTO path = name == NULL ? stk_cli_temporary_page(err) : stk_file_absolute(name);
    if (path == NULL) {
        return err->code != 0 ? err->code : stk_err_nomem(err);
    }
    STK_TRY(stk_file_write_atomic(path, html->data, html->len, 0600, err));
    if (stk_cli_flag(cli, "open")) {
        STK_TRY(show_page(path, err));
    }
    if (!stk_cli_json(cli)) {
        stk_buf_text(out, path);
        return 0;
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "path", path);
    stk_json_close(out, '}');
    return 0;
}
