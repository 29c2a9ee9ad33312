"""The Celery application of ``python -m benchmarks celery``, and its worker.

``python -m benchmarks.celery_app URL [--confirms]`` runs the worker, from ``broker/tests``.
"""

from __future__ import annotations

import sys

from celery import Celery  # type: ignore[import-untyped]  # has no types

#: Name of the task, which answers a number with the next one.
NEXT = "benchmarks.next"
#: Processes of a worker that carry out tasks.
PROCESSES = 2


def application(broker: str, *, confirms: bool) -> Celery:
    """An application whose results come back over the same broker.

    Args:
        broker: URL of the broker.
        confirms: Whether a publish waits until the broker has confirmed it.
    """
    app = Celery("benchmarks", broker=broker, backend="rpc://", set_as_current=False)
    app.conf.update(
        task_acks_late=True,
        broker_transport_options={"confirm_publish": confirms},
        broker_connection_retry_on_startup=True,
    )

    @app.task(name=NEXT)  # type: ignore[untyped-decorator]  # has no types
    def following(number: int) -> int:
        return number + 1

    return app


if __name__ == "__main__":
    application(sys.argv[1], confirms="--confirms" in sys.argv).worker_main(
        ["worker", "--concurrency", str(PROCESSES), "--loglevel", "warning"]
    )
