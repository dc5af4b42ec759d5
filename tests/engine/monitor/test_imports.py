"""The window is painted before torch is imported: the rooms built at start must not bring it in."""

from __future__ import annotations

import subprocess
import sys


def test_the_room_is_imported_and_built_without_torch() -> None:
    program = (
        "import sys\n"
        "from engine.events import EventBus\n"
        "from engine.monitor import capture, live\n"
        "monitor = live.LiveMonitor(EventBus())\n"
        "monitor.configure(enabled=False)\n"
        "assert monitor.observers([]) == {} and monitor.history() == [] and monitor.statistics().features == ()\n"
        "capture.ActivationSpec.from_wire({'top_k': 1, 'positions': 'last'})\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=120).returncode == 0
