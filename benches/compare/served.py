"""What Tapline's server makes of commands that share a screenshot: over HTTP, answers constrained to a place as by default.

All figures are wall time of the client, from the start of the request to the end of the reply."""

import base64
import json
import statistics
import subprocess
import time
from http.client import HTTPConnection

from measure import bind, environment

COMMANDS = 8


class Server:
    """`tapline serve` on a free port, with its own feature cache, on as many CPUs as threads."""

    def __init__(self, args, dtype):
        command = [args.tapline, "serve", "--model", args.checkpoint, "--dtype", dtype, "--port", "0",
                   "--timeout", "300s"]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env=environment(args.threads, args.cache), preexec_fn=bind(args.threads))

    def __enter__(self):
        for line in self.process.stderr:
            if "listening on http://" in line:
                self.address = line.split("http://")[1].split()[0]
                break
        else:
            raise SystemExit(f"the server ended with {self.process.wait()}")
        while self.request("GET", "/health/ready")[0] != 200:
            if self.process.poll() is not None:
                raise SystemExit(f"the server ended with {self.process.returncode}")
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.communicate()

    def request(self, method, path, body=None):
        connection = HTTPConnection(self.address, timeout=300)
        connection.request(method, path, body, {"content-type": "application/json"} if body else {})
        response = connection.getresponse()
        return response.status, response.read()

    def locate(self, png, decoding, *commands):
        """Milliseconds, and the tokens of each answer."""
        body = json.dumps({"image": base64.b64encode(png).decode(), "commands": commands, "decoding": decoding})
        start = time.perf_counter()
        status, reply = self.request("POST", "/locate", body)
        elapsed = (time.perf_counter() - start) * 1000
        if status != 200:
            raise SystemExit(f"the server says {status}: {reply.decode()}")
        return elapsed, [result["tokens"] for result in json.loads(reply)["results"]]


def measure(args, dtype, decoding, pngs):
    """Medians in ms of a first command on a new screenshot, a second one on the same, and eight in one request on a new
    one. Takes two screenshots a round, all different, after one more that warms up."""
    commands = [f"{args.command} w{700 + n}" for n in range(COMMANDS)]
    first, second, eight = [], [], []
    with Server(args, dtype) as server:
        server.locate(pngs[0], decoding, commands[0])
        for one, other in zip(pngs[1::2], pngs[2::2]):
            first.append(server.locate(one, decoding, commands[0])[0])
            second.append(server.locate(one, decoding, commands[1])[0])
            elapsed, answers = server.locate(other, decoding, *commands)
            assert len(answers) == COMMANDS
            eight.append(elapsed)
    return [statistics.median(times) for times in (first, second, eight)]
