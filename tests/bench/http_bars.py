"""The bar of the HTTP adapter: replays against a handler of cpp-httplib that does the same SELECT by hand."""
import subprocess


class Http:
    """Added to Bench: its programs and its bar."""

    HTTP = ["http-overhead"]

    def http_rate(self, side, program):
        """Requests a second that a server of this side answers, of keys that are done."""
        line = self.p.command(program, postgres=self.p.postgres, schema=self.schema)
        server = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            word, _, port = server.stdout.readline().partition(" ")
            if word != "port":
                raise self.failed(f"{program} did not listen")
            return self.p.run("bench_raw_http_load", side=side, port=int(port), seconds=max(1, 10 * min(1, self.scale)))["rate"]
        finally:
            server.stdin.close()
            if server.wait(timeout=30) != 0:
                raise self.failed(f"{program} ended with {server.returncode}")

    def http_overhead(self):
        self.p.fresh_schema()
        ratios = []
        for _ in range(self.rounds):
            # The framework's side first: its first pass over the keys is what fills the table.
            ours = self.http_rate("framework", "bench_fw_http")
            ratios.append(ours / self.http_rate("raw", "bench_raw_http"))
        self.bar("http-overhead", ratios, 0.80)
