# $ run
from metaflow import FlowSpec, current, parallel, step


class F(FlowSpec):
    @step
    def start(self):
        self.next(self.train, num_parallel=3)

    @parallel
    @step
    def train(self):
        self.node = current.parallel.node_index
        if self.node != 0:
            return
        self.said = "node 0 goes on"
        self.next(self.join)

    @step
    def join(self, inputs):
        self.nodes = sorted(one.node for one in inputs)
        self.said = [one.said for one in inputs if one.node == 0]
        self.next(self.end)

    @step
    def end(self):
        pass


if __name__ == "__main__":
    F()
