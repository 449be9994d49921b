#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# The processor's kernels against the reference, in the short form.
exec "$(dirname "${TANDEM:-build/tandem}")/checkops" --short
