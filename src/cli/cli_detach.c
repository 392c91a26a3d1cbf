/* `stoker run --detach`: the run goes on in the background. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_run.h"
#include "sys/file.h"

int stk_cli_detach(const stk_cli *cli)
{
    stk_err err = {0};
    char *store = NULL;
    if (stk_store_find(".", STK_STORE_CREATE, &store, &err) < 0) {
        return stk_cli_fail(cli, &err);
    }
    char folder[4200];
    char log[4400];
    (void)snprintf(folder, sizeof folder, "%s/logs", store);
    (void)snprintf(log, sizeof log, "%s/detached-%lld-%d.log", folder, (long long)time(NULL),
                   (int)getpid());
    free(store);
    int pipes[2];
    int rc = stk_file_mkdirs(folder, 0755, &err);
    int fd = rc < 0 ? -1 : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (rc == 0 && (fd < 0 || pipe(pipes) < 0)) {
        rc = stk_err_sys(&err, STK_E_SYS, errno, "making %s", log);
    }
    pid_t pid = rc < 0 ? -1 : fork();
    if (pid < 0) {
        return stk_cli_fail(cli,
                            rc < 0 ? &err : (stk_err_sys(&err, STK_E_SYS, errno, "forking"), &err));
    }
    if (pid == 0) {
        char number[16];
        close(pipes[0]);
        setsid();
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        dup2(null, 0);
        dup2(fd, 1);
        dup2(fd, 2);
        (void)snprintf(number, sizeof number, "%d", pipes[1]);
        setenv("STOKER_DETACH_FD", number, 1);
        return 0;
    }
    char id[64] = "";
    close(pipes[1]);
    ssize_t n = read(pipes[0], id, sizeof id - 1);
    if (n > 0) {
        id[strcspn(id, "\n")] = '\0';
        STK_BUF_AUTO out = STK_BUF_INIT(1u << 16);
        if (stk_cli_json(cli)) {
            stk_json_open(&out, NULL, '{');
            stk_json_put_text(&out, "run", id);
            stk_json_close(&out, '}');
        }
        puts(stk_text_or(out.data, id));
        fprintf(stderr,
                "stoker: run %s goes on in the background; 'stoker logs -f %s' follows it, "
                "output in %s\n",
                id, id, log);
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    bool known = WIFEXITED(status) && WEXITSTATUS(status) != 0;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    if (known && stk_file_read(log, 1 << 16, &text, &len, NULL) == 0 && len > 0) {
        (void)fwrite(text, 1, len, stderr); /* it has said why */
        (void)unlink(log);
    } else {
        stk_err_set(&err, STK_E_FAILED, "the run did not start; its output is in %s", log);
        (void)stk_cli_fail(cli, &err);
    }
    _exit(known ? WEXITSTATUS(status) : 3);
}
