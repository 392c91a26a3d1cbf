#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "cli/cli_man.h"
#include "cli/cli_parse.h"

static void print_option(const char *name, char letter, const char *arg, const char *help)
{
    char left[64], value[32] = "";
    if (arg != NULL) {
        (void)snprintf(value, sizeof value, " %s", arg);
    }
    if (letter != 0) {
        (void)snprintf(left, sizeof left, "-%c, --%s%s", letter, name, value);
    } else {
        (void)snprintf(left, sizeof left, "    --%s%s", name, value);
    }
    printf("  %-28s %s\n", left, help);
}

void stk_cli_print_help(const stk_command *command)
{
    printf("usage: stoker %s %s\n\n%s\n", command->name, command->usage, command->summary);
    if (command->text != NULL) {
        printf("\n%s\n", command->text);
    }
    puts("\noptions:");
    for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
        if (!o->hidden) {
            print_option(o->name, o->letter, o->arg, o->help);
        }
    }
    print_option("json", 0, NULL, "answer (and errors) as JSON");
    print_option("help", 'h', NULL, "this text");
}

static const char *group_of(const stk_command *command)
{
    size_t i = 0;
    while (stk_commands[i] != command) {
        i++;
    }
    return stk_command_groups[i];
}

static void put_command_json(const stk_command *command, bool whole, stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "command", command->name);
    stk_json_put_text(out, "group", group_of(command));
    stk_json_put_text(out, "summary", command->summary);
    if (whole) {
        stk_json_put_text(out, "usage", command->usage);
        stk_json_put_text(out, "text", command->text);
        stk_json_open(out, "options", '[');
        for (const stk_option *o = command->options; o != NULL && o->name != NULL; o++) {
            const char letter[2] = {o->letter, '\0'};
            char word[64];
            (void)snprintf(word, sizeof word, "--%s", o->name);
            stk_json_open(out, NULL, '{');
            stk_json_put_text(out, "option", word);
            stk_json_put_text(out, "letter", o->letter != '\0' ? letter : NULL);
            stk_json_put_text(out, "value", o->arg);
            stk_json_put_text(out, "help", o->help);
            stk_json_close(out, '}');
        }
        stk_json_close(out, ']');
    }
    stk_json_close(out, '}');
}

static void put_all_json(stk_buf *out)
{
    stk_json_open(out, NULL, '{');
    stk_json_put_text(out, "version", STK_VERSION);
    stk_json_open(out, "commands", '[');
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (!stk_commands[i]->hidden) {
            put_command_json(stk_commands[i], false, out);
        }
    }
    stk_json_close(out, ']');
    stk_json_close(out, '}');
}

static void put_all(stk_buf *out)
{
    stk_buf_text(out, "stoker " STK_VERSION ": runs machine-learning pipelines on accelerators\n\n"
                      "usage: stoker COMMAND [options] …\n\n");
    const char *group = "";
    for (size_t i = 0; stk_commands[i] != NULL; i++) {
        if (stk_commands[i]->hidden) {
            continue;
        }
        if (strcmp(group, stk_command_groups[i]) != 0) {
            stk_buf_printf(out, "%s%s:\n", stk_text_when(*group != '\0', "\n"),
                           stk_command_groups[i]);
            group = stk_command_groups[i];
        }
        stk_buf_printf(out, "  %-12s %s\n", stk_commands[i]->name, stk_commands[i]->summary);
    }
    stk_buf_text(out, "\n'stoker COMMAND --help' says more. First steps: stoker doctor; stoker run "
                      "pipeline.yaml; stoker show latest.");
}

static int run_help(const stk_cli *cli, stk_buf *out, stk_err *err)
{
    const char *word = stk_cli_arg(cli, 0);
    const stk_command *command = word == NULL ? NULL : stk_cli_find(word);
    if (word != NULL && command == NULL) {
        return stk_cli_usage(cli, err, "unknown command '%s'", word);
    }
    if (stk_cli_json(cli) && command != NULL) {
        put_command_json(command, true, out);
    } else if (stk_cli_json(cli)) {
        put_all_json(out);
    } else if (stk_cli_flag(cli, "man")) {
        stk_cli_print_man(command);
    } else if (command != NULL) {
        stk_cli_print_help(command);
    } else {
        put_all(out);
    }
    return 0;
}

static const stk_option options[] = {
    {"man", 0, NULL, "as a manual page (troff); without COMMAND: stoker(1)"}, {NULL}};

const stk_command stk_cmd_help = {.name = "help",
                                  .summary = "list the commands, or explain one",
                                  .usage = "[--man] [COMMAND]",
                                  .options = options,
                                  .max_args = 1,
                                  .run = run_help};
