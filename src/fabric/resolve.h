/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names to addresses, with a deadline.
 */
#ifndef TD_FABRIC_RESOLVE_H
#define TD_FABRIC_RESOLVE_H

#include "fabric/facts.h"

/* The IPv4 and then the IPv6 addresses of a name, in the resolver's order, as text (at
 * most max). The library's resolver has no deadline of its own: it runs in a child
 * process that is ended after `seconds`. Returns their number; 0 with the reason in why
 * (size bytes, may be NULL) when the name has no address or nobody answered. */
int td_resolve(const char *name, double seconds, char (*out)[TD_FACT_ADDR], int max,
               char *why, size_t size);

/* 127.0.0.0/8 and ::1; anything else, and what is no address, is false. */
bool td_addr_is_loopback(const char *text);

/* Is an IPv4 or IPv6 address inside a CIDR? False for what cannot be read. */
bool td_addr_in(const char *addr, const char *cidr);

#endif
