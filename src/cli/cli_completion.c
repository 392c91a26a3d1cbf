/* stoker completion: a script for the shell, made of the command tables. */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"

static const char head[] =
    "# bash completion for stoker: eval \"$(stoker completion bash)\"\n"
    "_stoker_runs() {\n"
    "    echo latest\n"
    "    \"$1\" runs --limit 50 2>/dev/null | awk '$2 ~ /^[0-9]+-[0-9]+/ {print $2}'\n"
    "}\n"
    "_stoker() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
    "command=${COMP_WORDS[1]}\n"
    "    local options= takes= words=\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n";

static const char tail[] =
    "    if [[ \" $takes \" == *\" $prev \"* ]]; then\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "    elif [[ $cur == -* ]]; then\n"
    "        COMPREPLY=($(compgen -W \"$options --json --help\" -- \"$cur\"))\n"
    "    elif [ \"$words\" = RUN ]; then\n"
    "        COMPREPLY=($(compgen -W \"$(_stoker_runs \"${COMP_WORDS[0]}\")\" -- \"$cur\"))\n"
    "    elif [ -n \"$words\" ] && [ \"$COMP_CWORD\" -eq 2 ]; then\n"
    "        COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
    "    else\n"
    "        COMPREPLY=($(compgen -f -- \"$cur\"))\n"
    "    fi\n"
    "}\n"
    "complete -o filenames -F _stoker stoker\n";

/* What the first positional may be: the word before a '|' alternative, or RUN. */
static void put_words(const char *usage)
{
    if (strstr(usage, "RUN") != NULL && strchr(usage, '|') == NULL) {
        fputs("RUN", stdout);
        return;
    }
    const char *sep = "";
    while (strchr(usage, '|') != NULL || *sep != '\0') {
        usage += strspn(usage, " |");
        size_t n = strspn(usage, "abcdefghijklmnopqrstuvwxyz-");
        if (n > 0) {
            printf("%s%.*s", sep, (int)n, usage);
            sep = " ";
        }
        const char *next = strchr(usage, '|');
        if (next == NULL) {
            return;
        }
        usage = next;
    }
}

static void put_command(const stk_command *command)
{
    printf("    %s)\n        options=\"", command->name);
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        printf("%s--%s", o == command->options ? "" : " ", o->name);
    }
    fputs("\"\n        takes=\"", stdout);
    const char *sep = "";
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (o->arg != NULL) {
            printf("%s--%s", sep, o->name);
            sep = " ";
        }
    }
    fputs("\"\n        words=\"", stdout);
    put_words(command->usage);
    puts("\" ;;");
}

static int run_completion(stk_cli *cli)
{
    const char *shell = stk_cli_arg(cli, 0);
    if (shell == NULL || strcmp(shell, "bash") != 0 || stk_cli_n_args(cli) > 1) {
        return stk_cli_usage(cli,
                             "'%s' is not a shell that has a completion here; bash has, and zsh "
                             "reads it after 'autoload -U bashcompinit; bashcompinit'",
                             shell != NULL ? shell : "");
    }
    fputs(head, stdout);
    fputs("        COMPREPLY=($(compgen -W \"", stdout);
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            printf("%s ", stk_commands[i]->name);
        }
    }
    puts("--version --help\" -- \"$cur\"))\n        return\n    fi\n    case $command in");
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        put_command(stk_commands[i]);
    }
    puts("    esac");
    fputs(tail, stdout);
    return 0;
}

const stk_command stk_cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for the shell",
    .usage = "bash",
    .text = "Put this into ~/.bashrc:\n\n    eval \"$(stoker completion bash)\"",
    .run = run_completion};
