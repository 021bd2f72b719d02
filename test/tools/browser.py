"""Drives a headless Chromium over the pipe of its DevTools protocol, with Python's own modules only."""
import base64
import json
import os
import shutil
import subprocess
import tempfile

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe",
           "--hide-scrollbars", "--force-color-profile=srgb", "--no-first-run", "--disable-background-networking",
           "--disable-component-update")


def find():
    """The path of a browser, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


def connect(to_browser, from_browser):
    """In the child: descriptors 3 and 4 are the ends of the pipes."""
    os.dup2(to_browser, 103)
    os.dup2(from_browser, 104)
    os.dup2(103, 3)
    os.dup2(104, 4)


class Browser:
    def __init__(self, path):
        to_read, self.to = os.pipe()
        self.back, back_write = os.pipe()
        self.folder = tempfile.mkdtemp(prefix="umf-browser-")
        self.process = subprocess.Popen([path, *OPTIONS, "--user-data-dir=" + self.folder, "about:blank"],
                                        preexec_fn=lambda: connect(to_read, back_write), close_fds=False,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(back_write)
        self.number, self.rest, self.events, self.session = 0, b"", [], None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
            self.call(domain + ".enable")

    def receive(self):
        while b"\0" not in self.rest:
            part = os.read(self.back, 1 << 20)
            if not part:
                raise EOFError("the browser has ended")
            self.rest += part
        message, self.rest = self.rest.split(b"\0", 1)
        return json.loads(message)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.receive()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError("%s: %s" % (method, answer["error"]))
                return answer["result"]
            self.events.append(answer)

    def wait(self, method):
        while not any(event.get("method") == method for event in self.events):
            self.events.append(self.receive())

    def window(self, width, scheme, height=900):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, path, fragment=""):
        """Opens a file anew. Events are those since then."""
        if fragment:  # else it would be a step within the page that is open
            self.navigate("about:blank")
        self.navigate("file://" + os.path.abspath(path) + ("#" + fragment if fragment else ""))

    def navigate(self, url):
        self.events = []
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired")

    def run(self, code):
        """The value of an expression of JavaScript, when what it promises has come."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError("%s: %s" % (code, answer["exceptionDetails"]["exception"].get("description")))
        return answer["result"].get("value")

    def mouse(self, kind, x, y, button="none"):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, buttons=int(button == "left"),
                  clickCount=1)

    def drag(self, x0, y0, x1, y1):
        self.mouse("mousePressed", x0, y0, "left")
        self.mouse("mouseMoved", x1, y1, "left")
        self.mouse("mouseReleased", x1, y1, "left")

    def key(self, name, code=0, text=""):
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, windowsVirtualKeyCode=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name, windowsVirtualKeyCode=code)

    def picture(self, path, clip=None):
        """Writes a PNG of the page, or of a part [x, y, width, height] of it."""
        size = self.call("Page.getLayoutMetrics")["cssContentSize"]
        x, y, width, height = clip or (0, 0, size["width"], min(size["height"], 2400))
        answer = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                           clip={"x": x, "y": y, "width": width, "height": height, "scale": 1})
        with open(path, "wb") as file:
            file.write(base64.b64decode(answer["data"]))

    def close(self):
        try:
            self.session = None
            self.call("Browser.close")
        except (EOFError, OSError):
            pass
        self.process.wait()
        os.close(self.to)
        os.close(self.back)
        shutil.rmtree(self.folder, ignore_errors=True)
