#include <stdio.h>

#include "cli/cli_man.h"
#include "cli/cli_parse.h"

static int run_help(stk_cli *cli)
{
    const char *word = stk_cli_arg(cli, 0);
    if (word != NULL) {
        const stk_command *command = stk_cli_find(word);
        if (command == NULL) {
            return stk_cli_usage(cli, "unknown command '%s'", word);
        }
        if (stk_cli_flag(cli, "man")) {
            stk_cli_print_man(command);
        } else {
            stk_cli_print_help(command);
        }
        return 0;
    }
    if (stk_cli_flag(cli, "man")) {
        stk_cli_print_man(NULL);
        return 0;
    }
    puts(
        "stoker " STK_VERSION
        ": runs machine-learning pipelines on accelerators\n\nusage: stoker COMMAND [options] …\n");
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            printf("  %-12s %s\n", stk_commands[i]->name, stk_commands[i]->summary);
        }
    }
    puts("\n'stoker COMMAND --help' says more. First steps: stoker doctor; stoker run "
         "pipeline.yaml; stoker show latest.");
    return 0;
}

static const stk_option options[] = {
    {"man", 0, NULL, "as a manual page (troff); without COMMAND: stoker(1)", false}, {NULL}};

const stk_command stk_cmd_help = {.name = "help",
                                  .summary = "list the commands, or explain one",
                                  .usage = "[--man] [COMMAND]",
                                  .options = options,
                                  .run = run_help};
