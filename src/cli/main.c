#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "away/agent/agent.h"
#include "cli/cli_parse.h"

/* Started without stdin, stdout or stderr, the next files to be opened would get their numbers: the
 * store's, say, and messages would be written into it. */
static void fill_standard_fds(void)
{
    int fd;
    do {
        fd = open("/dev/null", O_RDWR);
    } while (fd >= 0 && fd <= 2);
    if (fd > 2) {
        (void)close(fd);
    }
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "agent") == 0) {
        stk_agent_hold_signals();
    }
    fill_standard_fds();
    signal(SIGPIPE, SIG_IGN); /* a closed reader is an error of the write, not our death */
    signal(SIGXFSZ, SIG_IGN); /* and so is a file that grows above a limit (ulimit -f) */
    return stk_cli_main(argc, argv);
}
