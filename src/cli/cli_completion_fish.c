/* `stoker completion fish`. */
#include <string.h>

#include "cli/cli_completion.h"

static const char fish_head[] =
    "# fish completion for stoker: stoker completion fish | source\n"
    "function __stoker_runs\n"
    "    echo latest\n"
    "    stoker runs --limit 50 2>/dev/null | string match -r -g '^\\S+\\s+(\\d+-\\d\\S+)'\n"
    "end\n";

static void put_fish_text(stk_buf *out, const char *text)
{
    stk_buf_char(out, '\'');
    for (; *text != '\0'; text++) {
        if (*text == '\'' || *text == '\\') {
            stk_buf_char(out, '\\');
        }
        stk_buf_char(out, *text);
    }
    stk_buf_char(out, '\'');
}

static void put_fish_option(const stk_command *command, const stk_option *o, stk_buf *out)
{
    stk_buf_printf(out, "complete -c stoker -n '__fish_seen_subcommand_from %s' -l %s",
                   command->name, o->name);
    if (o->letter != 0) {
        stk_buf_printf(out, " -s %c", o->letter);
    }
    if (o->arg != NULL) {
        stk_buf_text(out, " -r");
    }
    if (o->arg != NULL && strchr(o->arg, '|') != NULL) {
        stk_buf_text(out, " -f -a '");
        stk_cli_put_choices(o->arg, out);
        stk_buf_char(out, '\'');
    }
    stk_buf_text(out, " -d ");
    put_fish_text(out, o->help);
    stk_buf_char(out, '\n');
}

void stk_cli_put_fish(stk_buf *out)
{
    stk_buf_text(out, fish_head);
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        const stk_command *command = stk_commands[i];
        STK_BUF_AUTO words = STK_BUF_INIT(1u << 16);
        if (command->hidden) {
            continue;
        }
        stk_buf_printf(out, "complete -c stoker -n __fish_use_subcommand -f -a %s -d ",
                       command->name);
        put_fish_text(out, command->summary);
        stk_buf_char(out, '\n');
        stk_cli_put_words(command->usage, &words);
        bool is_run = words.len > 0 && strcmp(words.data, "RUN") == 0;
        if (words.len > 0) {
            stk_buf_printf(out,
                           "complete -c stoker -n '__fish_seen_subcommand_from %s' -f -a '%s'\n",
                           command->name, is_run ? "(__stoker_runs)" : words.data);
        }
        for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
            if (!o->hidden) {
                put_fish_option(command, o, out);
            }
        }
    }
}
