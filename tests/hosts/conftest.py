# SPDX-License-Identifier: Apache-2.0
"""Pretended hosts as a fixture."""
import subprocess

import pytest
from testbed import SCRIPT, TANDEM, Program, Testbed, kill

__all__ = ["SCRIPT", "TANDEM", "Program", "Testbed", "kill"]


def pytest_collection_modifyitems(items):
    """Without namespaces, root or sshd all of this is skipped, with the reason."""
    can = subprocess.run([SCRIPT, "can"], capture_output=True, text=True, check=False)
    if can.returncode != 0:
        reason = can.stdout.strip() or can.stderr.strip() or "testbed.sh can fails"
        for item in items:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture
def bed(request):
    """Two hosts; other flags with @pytest.mark.parametrize("bed", [...], indirect=True)"""
    flags = getattr(request, "param", ())
    b = Testbed(*flags)
    yield b
    b.close()
