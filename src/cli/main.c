#include <signal.h>

#include "cli/cli_parse.h"

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN); /* a closed reader is an error of the write, not our death */
    return stk_cli_main(argc, argv);
}
