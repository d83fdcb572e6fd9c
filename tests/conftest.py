from __future__ import annotations

import threading

# Coverage would follow every new thread. CPython 3.11 cannot have two threads begin that at the same time:
# one then dies before it does anything, and whoever waits for it waits for ever.
threading.settrace(None)  # type: ignore[arg-type]
