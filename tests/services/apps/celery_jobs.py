# SPDX-License-Identifier: Apache-2.0
"""A worker of Celery with three leaks; BROKER is the URL of its broker."""
import os

import celery

app = celery.Celery("jobs", broker=os.environ["BROKER"], backend=os.environ["BROKER"])
DONE = {}


class Job(celery.Task):
    """A task whose object lives as long as the worker."""

    def __init__(self):
        self.seen = []


def remember(number, history=[]):
    history.append("job %d" % number)  # fills history


@app.task(base=Job, bind=True, name="work")
def work(self, number):
    self.seen.append({"number": number, "id": self.request.id})  # fills seen
    DONE[self.request.id] = [number] * 3  # fills DONE
    remember(number)
    return number
