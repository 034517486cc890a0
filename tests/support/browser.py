"""A real browser for tests: headless Chromium, driven by its DevTools protocol. Only Python's standard library."""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request


def chromium():
    """The program; None if there is none."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class WebSocket:
    """The client's side of RFC 6455, as far as DevTools needs it."""

    def __init__(self, url):
        at = urllib.parse.urlparse(url)
        self.socket = socket.create_connection((at.hostname, at.port), timeout=30)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall((f"GET {at.path} HTTP/1.1\r\nHost: {at.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                             f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n").encode())
        self.buffer = b""
        while b"\r\n\r\n" not in self.buffer:
            self.fill()
        head, self.buffer = self.buffer.split(b"\r\n\r\n", 1)
        if b" 101 " not in head.split(b"\r\n")[0]:
            raise RuntimeError(head.decode(errors="replace"))

    def fill(self):
        data = self.socket.recv(65536)
        if not data:
            raise RuntimeError("the browser has closed the connection")
        self.buffer += data

    def take(self, count):
        while len(self.buffer) < count:
            self.fill()
        taken, self.buffer = self.buffer[:count], self.buffer[count:]
        return taken

    def send(self, text):
        data, mask = text.encode(), os.urandom(4)
        size = len(data)
        head = bytes([0x81]) + (bytes([0x80 | size]) if size < 126 else
                                bytes([0x80 | 126]) + struct.pack(">H", size) if size < 65536 else
                                bytes([0x80 | 127]) + struct.pack(">Q", size))
        self.socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def receive(self):
        text = b""
        while True:
            first, second = self.take(2)
            size = second & 0x7f
            if size == 126:
                size = struct.unpack(">H", self.take(2))[0]
            elif size == 127:
                size = struct.unpack(">Q", self.take(8))[0]
            data = self.take(size)
            if first & 0x0f in (0, 1):
                text += data
                if first & 0x80:
                    return text.decode()


class Page:
    def __init__(self, socket_url):
        self.socket, self.last = WebSocket(socket_url), 0
        self.messages = []  # what the page has written to its console, and its exceptions
        for domain in ("Page", "Runtime"):
            self.call(f"{domain}.enable")

    def call(self, method, **parameters):
        self.last += 1
        self.socket.send(json.dumps({"id": self.last, "method": method, "params": parameters}))
        while True:
            answer = json.loads(self.socket.receive())
            if answer.get("method") in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown"):
                self.messages.append(json.dumps(answer["params"])[:500])
            if answer.get("id") != self.last:
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def run(self, script):
        """The value of the script; promises are waited for."""
        answer = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{script}: {answer['exceptionDetails'].get('exception', {}).get('description')}")
        return answer["result"].get("value")

    def open(self, url):
        self.call("Page.navigate", url=url)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def screenshot(self, path):
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))

    def wait(self, script, seconds=30):
        """Until the script gives a true value. Returns the value."""
        deadline = time.monotonic() + seconds
        while True:
            value = self.run(f"(found => found instanceof Node ? true : found)({script})")
            if value:
                return value
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds} s: {script}\nthe page: {self.run('document.body.innerText')}\n"
                                     f"its console: {self.messages}")
            time.sleep(0.1)


class Browser:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="chromium-")
        self.log = open(os.path.join(self.folder, "log"), "w")
        self.process = subprocess.Popen(
            [chromium(), "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--remote-debugging-port=0", "--remote-allow-origins=*", f"--user-data-dir={self.folder}", "about:blank"],
            stdout=self.log, stderr=self.log)
        port_file = os.path.join(self.folder, "DevToolsActivePort")
        deadline = time.monotonic() + 60
        while not os.path.exists(port_file) or not open(port_file).read().strip():
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise RuntimeError("Chromium did not start: " + open(self.log.name).read()[-2000:])
            time.sleep(0.05)
        self.port = int(open(port_file).read().split()[0])

    def page(self):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/json/new?about:blank", method="PUT")
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Page(json.load(answer)["webSocketDebuggerUrl"])

    def close(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
