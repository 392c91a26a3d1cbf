/* Values of options as Python's argparse reads and prints them. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "cli/cli_launch.h"

bool stk_cli_is_true(const char *text)
{
    static const char *const words[] = {"y", "yes", "t", "true", "on", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_cli_is_false(const char *text)
{
    static const char *const words[] = {"n", "no", "f", "false", "off", "0"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (strcasecmp(text, words[i]) == 0) {
            return true;
        }
    }
    return false;
}

bool stk_cli_print_real(const char *text, char *buf, size_t size)
{
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end != '\0') {
        return false;
    }
    for (int digits = 1; digits <= 17; digits++) {
        (void)snprintf(buf, size, "%.*g", digits, number);
        if (strtod(buf, NULL) == number) {
            break;
        }
    }
    if (strpbrk(buf, ".enai") == NULL) {
        (void)strncat(buf, ".0", size - strlen(buf) - 1);
    }
    return true;
}

bool stk_cli_print_whole(const char *text, char *buf, size_t size)
{
    char *end;
    errno = 0;
    long long number = strtoll(text, &end, 10);
    (void)snprintf(buf, size, "%lld", number);
    return end != text && *end == '\0' && errno == 0;
}

void stk_cli_print_case(const char *text, bool upper, char *buf, size_t size)
{
    (void)snprintf(buf, size, "%s", text);
    for (char *c = buf; *c != '\0'; c++) {
        *c = (char)(upper ? toupper((unsigned char)*c) : tolower((unsigned char)*c));
    }
}
