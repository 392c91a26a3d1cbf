# $ run
# $ --config-value cfg '{"cpus": 2, "retries": 3, "train": {"lr": 9}, "names": ["z"]}' run
# $ METAFLOW_FLOW_CONFIG_VALUE='{"cfg": {"cpus": 3, "retries": 1, "train": {"lr": 7}, "names": []}}' run
# $ METAFLOW_FLOW_CONFIG='{"text": "flow.py"}' run
# $ --config-value cfg '{bad' run
# $ --config text nowhere run
# $ --config nope flow.py run
# $ run --lr fast
# $ run --nope 1
from metaflow import Config, FlowSpec, Parameter, config_expr, environment, retry, step

PLAIN = {"cpus": 1, "retries": 2, "train": {"lr": 0.1}, "names": ["a", "b"]}


def first_word(text):
    return {"word": text.split()[0]}


class F(FlowSpec):
    cfg = Config("cfg", default_value=PLAIN)
    text = Config("text", default_value="x y", parser=first_word)
    lr = Parameter("lr", default=cfg.train.lr, type=float)
    twice = Parameter("twice", default=config_expr("cfg.cpus * 2"))

    @environment(vars={"CPUS": config_expr("str(cfg.cpus)")})
    @retry(times=cfg.retries, minutes_between_retries=0)
    @step
    def start(self):
        import os

        self.seen = (os.environ["CPUS"], self.cfg.train.lr, self.cfg["cpus"], self.lr, self.twice)
        self.more = (self.text.word, list(self.cfg.names), sorted(self.cfg), self.cfg.get("no", 4))
        try:
            self.cfg.cpus = 8
        except TypeError as bad:
            self.refused = type(bad).__name__
        self.next(self.end)

    @step
    def end(self):
        print(self.seen, self.more)


if __name__ == "__main__":
    F()
