"""The Celery application of ``test_celery``: a task notes its number in a file, and another one is sent by beat.

Settings come from the environment: CELERY_BROKERS (URLs, separated by ``;``) and CELERY_NOTES (the file).
"""

from __future__ import annotations

import os
import time

from celery import Celery  # type: ignore[import-untyped]  # has no types

app = Celery("celery_tasks", broker=os.environ["CELERY_BROKERS"])
app.conf.update(
    broker_connection_max_retries=None,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    task_acks_late=True,
    task_ignore_result=True,
    task_reject_on_worker_lost=True,
    worker_prefetch_multiplier=4,
    beat_schedule={"beat": {"task": "celery_tasks.beat", "schedule": 1.0}},
)


def _note(text: str) -> None:
    with open(os.environ["CELERY_NOTES"], "a", encoding="ascii") as notes:
        notes.write(f"{text}\n")


@app.task
def note(number: int) -> None:
    """Note the number, after some work."""
    time.sleep(0.01)
    _note(str(number))


@app.task
def beat() -> None:
    """Note that a task of beat was carried out."""
    _note("beat")
