/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another MPI, for tests: a library of Open MPI's file name that calls itself NAME.
 */
#include <string.h>

int MPI_Get_library_version(char *text, int *n)
{
    memcpy(text, NAME, sizeof(NAME));
    *n = (int)sizeof(NAME) - 1;
    return 0;
}
