# SPDX-License-Identifier: Apache-2.0
"""A real Chromium without a window, driven by its DevTools protocol over a pipe."""
import json
import os
import shutil
import subprocess
import tempfile


class Browser:
    """One page. Use as a context manager; errors are what the page's console and policy reported."""

    def __init__(self, width=1200, height=900, dark=False):
        self.width, self.height, self.dark = width, height, dark
        self.errors, self.last = [], 0

    def __enter__(self):
        self.folder = tempfile.mkdtemp()
        to_child, self.to = os.pipe()
        self.back, from_child = os.pipe()
        command = [
            shutil.which("chromium"),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--remote-debugging-pipe",
            "--user-data-dir=" + self.folder,
            "--window-size=%d,%d" % (self.width, self.height),
        ]

        def descriptors():  # the protocol's are 3 and 4
            one, other = os.dup(to_child), os.dup(from_child)
            os.dup2(one, 3)
            os.dup2(other, 4)

        self.process = subprocess.Popen(
            command,
            close_fds=False,
            preexec_fn=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_child)
        os.close(from_child)
        self.rest, self.session = b"", None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Log"):
            self.call(domain + ".enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if self.dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=self.width,
            height=self.height,
            deviceScaleFactor=1,
            mobile=False,
        )
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.folder, ignore_errors=True)

    def message(self):
        while b"\0" not in self.rest:
            data = os.read(self.back, 1 << 20)
            assert data, "chromium has ended"
            self.rest += data
        line, _, self.rest = self.rest.partition(b"\0")
        message = json.loads(line)
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.errors.append(params["exceptionDetails"])
        if method == "Log.entryAdded":
            self.errors.append(params["entry"]["text"])
        return message

    def call(self, method, **params):
        self.last += 1
        request = {"id": self.last, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.to, json.dumps(request).encode() + b"\0")
        while True:
            answer = self.message()
            if answer.get("id") == self.last:
                assert "error" not in answer, answer
                return answer["result"]

    def open(self, path):
        """A file, or an address."""
        url = path if "://" in path else "file://" + os.path.abspath(path)
        self.call("Page.navigate", url=url)
        while self.message().get("method") != "Page.loadEventFired":
            pass

    def run(self, expression):
        """The value of an expression of JavaScript in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def wait(self, expression):
        """The same of a promise's value."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def key(self, key, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=text)

    def click(self, x, y):
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def text(self, selector):
        return self.run("document.querySelector(%s).innerText" % json.dumps(selector))

    def choose(self, control, value):
        self.run(
            "{const c = document.getElementById(%s); c.%s = %s; "
            "c.dispatchEvent(new Event(c.type === 'search' ? 'input' : 'change'))}"
            % (
                json.dumps(control),
                "checked" if isinstance(value, bool) else "value",
                json.dumps(value),
            )
        )
