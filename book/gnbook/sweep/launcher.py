"""Start a kernel that ends with the process that asked for it, and at once if it cannot begin; run as a script."""

import ctypes
import os
import signal
import sys
import threading
import time
import traceback

PR_SET_PDEATHSIG = 1


def end_with(parent: int) -> None:
    """End this process when its parent ends, also where ipykernel, which begins late to look, would not see to it."""
    while os.getppid() == parent:
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    if not sys.flags.safe_path:
        del sys.path[0]  # the folder of this script, whose modules are to hide no others
    if sys.platform == "linux":  # at once, whatever this process is in the middle of
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    threading.Thread(target=end_with, args=[int(os.environ["JPY_PARENT_PID"])], daemon=True).start()
    try:
        from ipykernel.kernelapp import launch_new_instance

        launch_new_instance()
    except Exception:
        # A port that it was given is taken, say. Left to itself it would wait for threads that never end.
        traceback.print_exc(file=sys.__stderr__)
        os._exit(1)
