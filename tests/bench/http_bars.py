"""The bar of the HTTP adapter: replays against a handler of cpp-httplib that does the same SELECT by hand."""
import contextlib
import subprocess


class Http:
    """Added to Bench: its programs and its bar."""

    HTTP = ["http-overhead"]
    HTTP_TURNS = 5  # of each side in a round: what else the machine does meets both

    @contextlib.contextmanager
    def http_server(self, program):
        """The port of a server that runs meanwhile."""
        line = self.p.command(program, postgres=self.p.postgres, schema=self.schema)
        server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            word, _, port = server.stdout.readline().partition(" ")
            if word != "port":
                raise self.failed(f"{program} did not listen")
            yield int(port)
            server.stdin.close()
            if server.wait(timeout=30) != 0:
                raise self.failed(f"{program} ended with {server.returncode}")
        finally:
            server.kill()
            server.wait()

    def http_overhead(self):
        self.p.fresh_schema()
        ratios = []
        for _ in range(self.rounds):
            rates = {"framework": 0, "raw": 0}
            with self.http_server("bench_fw_http") as ours, self.http_server("bench_raw_http") as raw:
                for _ in range(self.HTTP_TURNS):
                    # The framework's side first: its first pass over the keys is what fills the table.
                    for side, port in (("framework", ours), ("raw", raw)):
                        seconds = max(1, 3 * min(1, self.scale))
                        rates[side] += self.p.run("bench_raw_http_load", side=side, port=port, seconds=seconds)["rate"]
            ratios.append(rates["framework"] / rates["raw"])
        self.bar("http-overhead", ratios, 0.80)
