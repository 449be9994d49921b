/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Another MPI, for tests: a library of Open MPI's file name that calls itself otherwise.
 */
#include <string.h>

int MPI_Get_library_version(char *text, int *n)
{
    (void)strcpy(text, "Another MPI 1.0");
    *n = (int)strlen(text);
    return 0;
}
