"""Runs Python within limits, and writes the CPU time and the peak memory of that process. Standard library only.

    python -I -S limited.py FILE MEMORY_BYTES CPU_S ARGUMENT...

The kernel counts the memory of the process that starts a program as the program's own, so this process is a small one.
"""

import json
import os
import resource
import sys


def main() -> int:
    """Run the program; return its exit code, or the negative number of the signal that ended it."""
    path, memory_bytes, cpu_s, *arguments = sys.argv[1:]
    pid = os.fork()
    if pid == 0:
        for limit, value in ((resource.RLIMIT_AS, int(memory_bytes)), (resource.RLIMIT_CPU, int(cpu_s))):
            resource.setrlimit(limit, (value, value))
        os.execv(sys.executable, [sys.executable, *arguments])
    _, status, used = os.wait4(pid, 0)
    figures = {"cpu_s": round(used.ru_utime + used.ru_stime, 2), "peak_bytes": used.ru_maxrss << 10}
    with open(path, "w") as file:
        json.dump(figures, file)
    return os.waitstatus_to_exitcode(status)


if __name__ == "__main__":
    sys.exit(main() and 1)
