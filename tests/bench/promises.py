"""The bars of what must hold while servers fail, topics change and handlers misbehave: counts and ratios, not speed."""


class Promises:
    """Added to Bench: its programs, topics and bars. For a new bar: its name and the method that measures it go into PROMISES. A method
    that measures several bars is named at each, and is called once with the names of all that are wanted."""

    PROMISES = {
    }

    def promises(self, wanted):
        for method in dict.fromkeys(self.PROMISES[name] for name in wanted if name in self.PROMISES):
            getattr(self, method)([name for name in wanted if self.PROMISES.get(name) == method])
