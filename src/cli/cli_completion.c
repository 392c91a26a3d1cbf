/* stoker completion: a script for the shell, made of the command tables. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"

static const char head[] =
    "# bash completion for stoker: eval \"$(stoker completion bash)\"\n"
    "_stoker_runs() {\n"
    "    echo latest\n"
    "    \"$1\" runs --limit 50 2>/dev/null | awk '$2 ~ /^[0-9]+-[0-9]+/ {print $2}'\n"
    "}\n"
    "_stoker() {\n"
    "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} "
    "command=${COMP_WORDS[1]}\n"
    "    local options= takes= words= values=\n"
    "    COMPREPLY=()\n"
    "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n";

static const char tail[] =
    "    if [ -n \"$values\" ]; then\n"
    "        COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
    "    elif [[ \" $takes \" == *\" $prev \"* ]]; then\n"
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

static void put_commands(FILE *out)
{
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            fprintf(out, "%s ", stk_commands[i]->name);
        }
    }
}

/* What the first positional may be: RUN, a command, or the words that begin the usage's
 * alternatives; nothing where it is a file. */
static void put_words(const char *usage, FILE *out)
{
    if (strstr(usage, "RUN") != NULL && strchr(usage, '|') == NULL) {
        fputs("RUN", out);
        return;
    }
    if (strstr(usage, "[COMMAND]") != NULL) {
        put_commands(out);
        return;
    }
    const char *sep = "";
    while (usage != NULL) {
        usage += strspn(usage, " |");
        if (*usage == '[' && strchr(usage, ']') != NULL) { /* options stand before the word */
            usage = strchr(usage, ']') + 1;
            usage += strspn(usage, " ");
        }
        size_t n = strspn(usage, "abcdefghijklmnopqrstuvwxyz");
        if (n > 0 && strchr(" |", usage[n]) != NULL) { /* the string's end is among them */
            fprintf(out, "%s%.*s", sep, (int)n, usage);
            sep = " ";
        }
        usage = strchr(usage, '|');
    }
}

/* The values of options that take one of a few words: their argument is "this|that". */
static void put_values(const stk_command *command, FILE *out)
{
    fputs("        case $prev in", out);
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (o->arg != NULL && strchr(o->arg, '|') != NULL) {
            fprintf(out, " --%s) values=\"", o->name);
            for (const char *c = o->arg; *c != '\0'; c++) {
                fputc(*c == '|' ? ' ' : *c, out);
            }
            fputs("\" ;;", out);
        }
    }
    fputs(" esac\n", out);
}

static void put_command(const stk_command *command, FILE *out)
{
    fprintf(out, "    %s)\n        options=\"", command->name);
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        fprintf(out, "%s--%s", o == command->options ? "" : " ", o->name);
    }
    fputs("\"\n        takes=\"", out);
    const char *sep = "";
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (o->arg != NULL) {
            fprintf(out, "%s--%s", sep, o->name);
            sep = " ";
        }
    }
    fputs("\"\n", out);
    put_values(command, out);
    fputs("        words=\"", out);
    put_words(command->usage, out);
    fputs("\" ;;\n", out);
}

static void put_script(FILE *out)
{
    fputs(head, out);
    fputs("        COMPREPLY=($(compgen -W \"", out);
    put_commands(out);
    fputs("--version --help\" -- \"$cur\"))\n        return\n    fi\n    case $command in\n", out);
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        put_command(stk_commands[i], out);
    }
    fputs("    esac\n", out);
    fputs(tail, out);
}

static int run_completion(stk_cli *cli)
{
    const char *shell = stk_cli_arg(cli, 0);
    if (shell == NULL) {
        return stk_cli_usage(cli, "for which shell? stoker completion bash");
    }
    if (strcmp(shell, "bash") != 0) {
        return stk_cli_usage(cli,
                             "'%s' is not a shell that has a completion here; bash has, and zsh "
                             "reads it after 'autoload -U bashcompinit; bashcompinit'",
                             shell);
    }
    int status = stk_cli_at_most(cli, 1);
    if (status != 0 || !stk_cli_json(cli)) {
        if (status == 0) {
            put_script(stdout);
        }
        return status;
    }
    char *text = NULL;
    size_t len = 0;
    FILE *memory = open_memstream(&text, &len);
    if (memory != NULL) {
        put_script(memory);
        (void)fclose(memory);
    }
    STK_BUF_AUTO out = STK_BUF_INIT(1u << 20);
    stk_err err = {0};
    stk_json_open(&out, NULL, '{');
    stk_json_put_text(&out, "shell", "bash");
    stk_json_put_text(&out, "script", stk_text_or(text, ""));
    stk_json_close(&out, '}');
    stk_buf_char(&out, '\n');
    int rc = text == NULL ? stk_err_nomem(&err) : 0;
    free(text);
    return stk_cli_answer(cli, rc, &out, &err);
}

const stk_command stk_cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for the shell",
    .usage = "bash",
    .text = "Put this into ~/.bashrc:\n\n    eval \"$(stoker completion bash)\"",
    .run = run_completion};
