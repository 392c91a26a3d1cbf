# $ run
# $ run --nodes 2
"""A gang of nodes: what each knows of the others, what the join has of them, and a foreach before."""

from metaflow import FlowSpec, Parameter, current, parallel, step


class F(FlowSpec):
    nodes = Parameter("nodes", default=3)

    @step
    def start(self):
        self.shared = {"seed": 7}
        self.next(self.train, num_parallel=self.nodes)

    @parallel
    @step
    def train(self):
        known = current.parallel
        self.node = known.node_index
        self.known = known.num_nodes, known.main_ip, known.node_index == 0
        self.control = known.control_task_id is not None
        self.seed = self.shared["seed"] + known.node_index
        self.own = "only the first" if known.node_index == 0 else None
        self.next(self.join)

    @step
    def join(self, inputs):
        self.seeds = sorted(one.seed for one in inputs)
        self.by_node = {one.node: (one.own, one.known[0], one.known[2]) for one in inputs}
        self.first = inputs[0].node
        self.alone = current.parallel.num_nodes, current.parallel.node_index
        self.merge_artifacts(inputs, include=["shared", "control"])
        self.next(self.end)

    @step
    def end(self):
        print(self.seeds, self.shared)


if __name__ == "__main__":
    F()
