/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What this program is: its version, and the build id that the Makefile takes from the
 * sources. Apart, so that a new commit compiles little.
 */
#include "cmd/cmd.h"

const char td_version[] = TD_VERSION, td_build[] = TD_BUILD;
