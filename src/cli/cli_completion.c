/* `stoker completion`: a script for the shell, made from the command tables. */
#include "cli/cli_completion.h"

#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_read.h"

static const char bash_head[] =
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

static const char bash_tail[] =
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

static void put_commands(stk_buf *out)
{
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            stk_buf_printf(out, "%s ", stk_commands[i]->name);
        }
    }
}

void stk_cli_put_words(const char *usage, stk_buf *out)
{
    if (strncmp(usage, "[options] RUN", 13) == 0 || strncmp(usage, "[options] [RUN", 14) == 0) {
        stk_buf_text(out, "RUN");
        return;
    }
    if (strstr(usage, "[COMMAND]") != NULL) {
        put_commands(out);
        return;
    }
    const char *sep = "";
    while (usage != NULL) {
        usage += strspn(usage, " |");
        if (*usage == '[' && strchr(usage, ']') != NULL) { /* options come before the word */
            usage = strchr(usage, ']') + 1;
            usage += strspn(usage, " ");
        }
        size_t n = strspn(usage, "abcdefghijklmnopqrstuvwxyz");
        if (n > 0 && strchr(" |", usage[n]) != NULL) { /* strchr also finds the terminating NUL */
            stk_buf_printf(out, "%s%.*s", sep, (int)n, usage);
            sep = " ";
        }
        usage = strchr(usage, '|');
    }
}

void stk_cli_put_choices(const char *arg, stk_buf *out)
{
    for (const char *c = arg; *c != '\0'; c++) {
        stk_buf_char(out, *c == '|' ? ' ' : *c);
    }
}

/* The values of options that take one of several words: their argument is "this|that". */
static void put_values(const stk_command *command, stk_buf *out)
{
    stk_buf_text(out, "        case $prev in");
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (o->arg != NULL && strchr(o->arg, '|') != NULL) {
            stk_buf_printf(out, " --%s) values=\"", o->name);
            stk_cli_put_choices(o->arg, out);
            stk_buf_text(out, "\" ;;");
        }
    }
    stk_buf_text(out, " esac\n");
}

/* The names of the options; with_value: only of those that take one. */
static void put_options(const stk_command *command, bool with_value, stk_buf *out)
{
    const char *before = "";
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if ((o->arg != NULL || !with_value) && !o->hidden) {
            stk_buf_printf(out, "%s--%s", before, o->name);
            before = " ";
        }
    }
}

static void put_command(const stk_command *command, stk_buf *out)
{
    stk_buf_printf(out, "    %s)\n        options=\"", command->name);
    put_options(command, false, out);
    stk_buf_text(out, "\"\n        takes=\"");
    put_options(command, true, out);
    stk_buf_text(out, "\"\n");
    put_values(command, out);
    stk_buf_text(out, "        words=\"");
    stk_cli_put_words(command->usage, out);
    stk_buf_text(out, "\" ;;\n");
}

static void put_bash(stk_buf *out)
{
    stk_buf_text(out, bash_head);
    stk_buf_text(out, "        COMPREPLY=($(compgen -W \"");
    put_commands(out);
    stk_buf_text(
        out, "--version --help\" -- \"$cur\"))\n        return\n    fi\n    case $command in\n");
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            put_command(stk_commands[i], out);
        }
    }
    stk_buf_text(out, "    esac\n");
    stk_buf_text(out, bash_tail);
}

/* zsh reads bash's. As the file _stoker of its $fpath it is run at the first completion. */
static void put_zsh(stk_buf *out)
{
    stk_buf_text(out, "#compdef stoker\n"
                      "(( $+functions[compdef] )) || { autoload -Uz compinit && compinit }\n"
                      "autoload -Uz bashcompinit && bashcompinit\n");
    put_bash(out);
    stk_buf_text(out, "[ \"$funcstack[1]\" != _stoker ] || _bash_complete -F _stoker\n");
}

static int run_completion(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    static const struct {
        const char *shell;
        void (*put)(stk_buf *out);
    } shells[] = {{"bash", put_bash}, {"zsh", put_zsh}, {"fish", stk_cli_put_fish}};
    const char *shell = stk_cli_arg(cli, 0);
    STK_BUF_AUTO script = STK_BUF_INIT(1u << 20);
    size_t i = 0, n = sizeof shells / sizeof *shells;
    while (i < n && strcmp(stk_text_or(shell, ""), shells[i].shell) != 0) {
        i++;
    }
    if (i == n) {
        return stk_cli_usage(cli, err, "'%s' is no known shell: stoker completion bash|zsh|fish",
                             stk_text_or(shell, ""));
    }
    shells[i].put(&script);
    STK_TRY(stk_buf_check(&script, err));
    if (!stk_cli_json(cli)) {
        return stk_buf_text(out, script.data);
    }
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "shell", shell);
    stk_json_put_text(out, "script", script.data);
    stk_json_close(out, '}');
    return 0;
}

const stk_command stk_cmd_completion = {
    .name = "completion",
    .summary = "print a completion script for the shell",
    .usage = "bash | zsh | fish",
    .text = "bash, in ~/.bashrc:\n\n    eval \"$(stoker completion bash)\"\n\n"
            "zsh, in ~/.zshrc:\n\n    eval \"$(stoker completion zsh)\"\n\n"
            "fish, in ~/.config/fish/config.fish:\n\n    stoker completion fish | source",
    .max_args = 1,
    .run = run_completion};
