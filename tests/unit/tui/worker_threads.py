"""A reader whose methods run on threads as the workers of the screen do: those of a group give way to the newest."""

import threading
from queue import Queue

from qdebug.tui.reading.messages import Failed
from qdebug.tui.reading.reader import Reader


class FakeWorker:
    """What the reader knows of a worker."""

    def __init__(self):
        self.cancelled_event = threading.Event()

    @property
    def is_cancelled(self):
        return self.cancelled_event.is_set()


class WorkerThreads:
    """A reader, its threads and its events.

    Args:
        openings: How each comparison is opened.
    """

    def __init__(self, *openings):
        self.events = Queue()
        self.reader = Reader(openings, self.events.put)
        self._workers, self._threads = {}, []

    def compare(self):
        self._start("comparison", self.reader.compare)
        return self

    def answer(self, request, known=None):
        self._start("detail", self.reader.answer, request, known)

    def try_out(self, request):
        self._start("trial", self.reader.try_out, request)

    def look(self, request):
        self._start("window", self.reader.read_window, request)

    def do(self, job):
        self._start(object(), self.reader.run_job, job)

    def cancel(self, group):
        if group in self._workers:
            self._workers[group].cancelled_event.set()

    def _start(self, group, function, *args):
        self.cancel(group)
        worker = self._workers[group] = FakeWorker()

        def run():
            try:
                function(*args, worker)
            except Exception as error:  # noqa: BLE001  as a worker does
                self.events.put(Failed(error=error, fatal=True))

        self._threads.append(threading.Thread(target=run, daemon=True))
        self._threads[-1].start()

    def stop(self):
        """Cancel all as at the end of the program; return whether the threads have ended."""
        for group in self._workers:
            self.cancel(group)
        for thread in self._threads:
            thread.join(10)
        return not any(thread.is_alive() for thread in self._threads)

    def until(self, kind):
        """Take events up to the first one of a kind; return all of them."""
        taken = []
        while True:
            taken.append(self.events.get(timeout=20))
            if isinstance(taken[-1], kind):
                return taken
