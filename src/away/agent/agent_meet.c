/* Where the nodes of a gang meet, where whoever started us couldn't say: AWS Batch tells the
 * address of node 0 to the others only, once it runs. */
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "away/agent/agent_private.h"

/* Of the first interface that others may reach; a Batch node has one of its own. */
static void own_address(char *ret, socklen_t size)
{
    struct ifaddrs *all = NULL;
    (void)snprintf(ret, size, "127.0.0.1");
    if (getifaddrs(&all) < 0) {
        return;
    }
    for (const struct ifaddrs *one = all; one != NULL; one = one->ifa_next) {
        if (one->ifa_addr != NULL && one->ifa_addr->sa_family == AF_INET &&
            (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0) {
            struct sockaddr_in at;
            memcpy(&at, one->ifa_addr, sizeof at);
            (void)inet_ntop(AF_INET, &at.sin_addr, ret, size);
            break;
        }
    }
    freeifaddrs(all);
}

void stk_agent_meet(void)
{
    char own[INET_ADDRSTRLEN], text[300];
    const char *port = getenv("STOKER_GANG_PORT");
    const char *lead = getenv("AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS");
    if (port == NULL || getenv("STOKER_GANG_RDZV") != NULL) {
        return;
    }
    own_address(own, sizeof own);
    (void)snprintf(text, sizeof text, "%s:%s", lead != NULL && *lead != '\0' ? lead : own, port);
    (void)setenv("STOKER_GANG_RDZV", text, 1);
}
