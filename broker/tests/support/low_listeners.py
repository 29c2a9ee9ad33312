"""The command ``understudy`` with its listening sockets at the lowest free descriptors, as before ADR 0021.

Only for measuring what that costs the clients of a killed node.
"""

from understudy.cli.main import main
from understudy.runtime.process.descriptors import Descriptors

if __name__ == "__main__":
    Descriptors.listener_floor = lambda self, connections_max: 0  # type: ignore[method-assign]
    main()
