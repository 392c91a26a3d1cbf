# $ run
# $ run --with own_tagged:word=x --extra 8
import os

from metaflow import (
    USER_SKIP_STEP,
    Config,
    FlowMutator,
    FlowSpec,
    Parameter,
    StepMutator,
    UserStepDecorator,
    current,
    environment,
    step,
    user_step_decorator,
)


@user_step_decorator
def timing(step_name, flow, inputs, attributes):
    flow.before = step_name
    yield
    flow.after = (step_name, flow.before, inputs is None)


@user_step_decorator
def own_tagged(step_name, flow, inputs, attributes):
    yield
    flow.tagged = attributes


@user_step_decorator
def skipped(step_name, flow, inputs, attributes):
    if attributes.get("skip"):
        yield USER_SKIP_STEP
    else:
        yield


@user_step_decorator
def chosen(step_name, flow, inputs):
    flow.others = ["p", "q", "r"]
    yield {"foreach": "others"}


@user_step_decorator
def instead(step_name, flow, inputs):
    def other(flow):
        flow.said = "instead of it"
        return True

    yield other


@user_step_decorator
def calmed(step_name, flow, inputs):
    try:
        yield
    except ValueError as bad:
        flow.calm = str(bad)


class Caught(UserStepDecorator):
    def init(self, *args, **kwargs):
        self.given = kwargs

    def pre_step(self, step_name, flow, inputs=None):
        flow.entered = step_name

    def post_step(self, step_name, flow, exception=None):
        flow.caught = (repr(exception), sorted(self.given.items()))


class Timed(StepMutator):
    def init(self, *args, **kwargs):
        self.args = args

    def mutate(self, mutable_step):
        if "on" in self.args:
            mutable_step.add_decorator(timing)
        mutable_step.remove_decorator("environment")


class Extended(FlowMutator):
    def pre_mutate(self, mutable_flow):
        found = dict(mutable_flow.configs)
        mutable_flow.add_parameter("extra", Parameter("extra", default=found["cfg"].n))

    def mutate(self, mutable_flow):
        for name, one in mutable_flow.steps:
            if name in ("first", "b"):
                one.add_decorator(environment, deco_kwargs={"vars": {"OWN": name}})
            if name == "b":
                one.add_decorator("retry", deco_kwargs={"times": 2, "minutes_between_retries": 0})
                one.add_decorator("environment:vars={}", duplicates=one.IGNORE)
            assert one.has_decorator("retry") == (name == "b")
        mutable_flow.end.add_decorator("own_tagged", deco_kwargs={"word": "by a mutator"})


@Extended
class F(FlowSpec):
    cfg = Config("cfg", default_value={"skip": True, "n": 3})

    @timing
    @step
    def start(self):
        self.items = [1, 2]
        self.next(self.first)

    @skipped(skip=cfg.skip)
    @step
    def first(self):
        self.never = True
        self.next(self.b, foreach="items")

    @Caught(n=cfg.n)
    @step
    def b(self):
        self.own = os.environ.get("OWN"), current.retry_count
        if self.input == 2:
            raise RuntimeError("two")
        self.next(self.join)

    @Timed("on")
    @environment(vars={"OWN": "taken away"})
    @step
    def join(self, inputs):
        self.owns = [one.own for one in inputs]
        self.caughts = [one.caught for one in inputs]
        self.left = os.environ.get("OWN")
        self.next(self.many)

    @chosen
    @step
    def many(self):
        self.next(self.c, foreach="nothing")

    @calmed
    @step
    def c(self):
        if self.index == 1:
            raise ValueError(self.input)
        self.next(self.together)

    @step
    def together(self, inputs):
        self.calms = [getattr(one, "calm", None) for one in inputs]
        self.next(self.replaced)

    @instead
    @step
    def replaced(self):
        self.said = "itself"
        self.next(self.end)

    @step
    def end(self):
        print(self.said, self.calms, self.extra)


if __name__ == "__main__":
    F()
