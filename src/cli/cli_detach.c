/* `stoker run --detach`: runs in the background. */
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

/* In the child: no stdin, output to the log, the number of the pipe in the environment. */
static void become_detached(int log_fd, const int pipes[2])
{
    char number[16];
    close(pipes[0]);
    setsid();
    int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    dup2(null, 0);
    dup2(log_fd, 1);
    dup2(log_fd, 2);
    (void)snprintf(number, sizeof number, "%d", pipes[1]);
    setenv("STOKER_DETACH_FD", number, 1);
}

/* The run has begun: prints its id and ends the parent. */
static void print_begun(const stk_cli *cli, const char *id, const char *log)
{
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

int stk_cli_detach(const stk_cli *cli, stk_err *err)
{
    STK_TEXT_AUTO store = NULL;
    STK_TEXT_AUTO text = NULL;
    size_t len = 0;
    char folder[4200], log[4400], id[64] = "";
    int pipes[2], status = 0;
    STK_TRY(stk_store_find(".", STK_STORE_CREATE, &store, err));
    (void)snprintf(folder, sizeof folder, "%s/logs", store);
    (void)snprintf(log, sizeof log, "%s/detached-%lld-%d.log", folder, (long long)time(NULL),
                   (int)getpid());
    STK_TRY(stk_file_mkdirs(folder, 0755, err));
    STK_FD_AUTO fd = open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0 || pipe(pipes) < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "making %s", log);
    }
    pid_t pid = fork();
    if (pid < 0) {
        return stk_err_sys(err, STK_E_SYS, errno, "forking");
    }
    if (pid == 0) {
        become_detached(fd, pipes);
        return 0;
    }
    close(pipes[1]);
    if (read(pipes[0], id, sizeof id - 1) > 0) {
        id[strcspn(id, "\n")] = '\0';
        print_begun(cli, id, log);
    }
    waitpid(pid, &status, 0);
    bool known = WIFEXITED(status) && WEXITSTATUS(status) != 0;
    if (known && stk_file_read(log, 1 << 16, &text, &len, NULL) == 0 && len > 0) {
        (void)fwrite(text, 1, len, stderr); /* the child's own error */
        (void)unlink(log);
    } else {
        stk_err_set(err, STK_E_FAILED, "the run did not start; its output is in %s", log);
        (void)stk_cli_fail(cli, err);
    }
    _exit(known ? WEXITSTATUS(status) : 3);
}
