#include <stdio.h>

int main(void)
{
    puts("stoker " STK_VERSION);
    return 0;
}
