"""For a Python whose clock is off by TESTS_CLOCK_OFF_S seconds.

What is not written in Python, such as obstore and the JVM, has the machine's clock.
"""

import os
import time

OFF_S = float(os.environ.get("TESTS_CLOCK_OFF_S", "0"))
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + OFF_S
time.time_ns = lambda: _time_ns() + int(OFF_S * 1e9)
