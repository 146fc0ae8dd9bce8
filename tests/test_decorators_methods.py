"""Methods bind as they do undecorated, and never record a wrong first argument."""

# ruff: noqa: S301, PLR0917 - own pickles; parameters are the point

import abc
import copy
import functools
import inspect
import pickle
import types
import weakref

import pytest

from durable_agent import _wrapping
from durable_agent._kinds import Kind
from durable_agent._spec import bind
from durable_agent.decorators import checkpointed_tool
from durable_agent.errors import DecorationError


@pytest.fixture
def asked(monkeypatch):
    """The bound arguments of each call that reached the engine."""
    calls = []

    def call(_spec, target, args, kwargs):
        calls.append((target.short_name, bind(target, args, kwargs)))
        return target.fn(*args, **kwargs)

    monkeypatch.setitem(_wrapping._RUNNERS, Kind.PLAIN, call)
    for method in (Agent.send, Agent.make.__func__):
        _wrapping.front_of(method)._look()
    return calls


def both_orders(kind):
    """A class with one method decorated inside ``kind`` and one outside."""

    class Tools:
        @kind
        @checkpointed_tool
        def inner(*args):
            return args

        @checkpointed_tool
        @kind
        def outer(*args):
            return args

    return Tools


@pytest.mark.parametrize("name", ["inner", "outer"])
def test_a_static_method_gets_no_receiver(asked, name):
    tools = both_orders(staticmethod)

    assert getattr(tools, name)(1) == (1,)
    assert getattr(tools(), name)(1) == (1,)
    assert asked == [(name, {"args": (1,)})] * 2


@pytest.mark.parametrize("name", ["inner", "outer"])
def test_a_class_method_gets_the_class_and_does_not_record_it(asked, name):
    tools = both_orders(classmethod)

    class Sub(tools):
        pass

    assert getattr(tools, name)(1) == (tools, 1)
    assert getattr(tools(), name)(1) == (tools, 1)
    assert getattr(Sub, name)(1) == (Sub, 1)
    assert asked == [(name, {"args": (1,)})] * 3


def test_a_method_gets_its_instance_however_it_is_called(asked):
    class Agent:
        @checkpointed_tool
        def send(self, to):
            return self, to

    class Sub(Agent):
        @checkpointed_tool
        def send(self, to):
            return super().send(to + "!")

    agent, sub = Agent(), Sub()
    bound = agent.send

    assert agent.send("a") == (agent, "a")
    assert Agent.send(agent, "a") == (agent, "a")
    assert Agent.send(self=agent, to="a") == (agent, "a")
    assert bound("a") == (agent, "a")
    assert functools.partial(agent.send, "a")() == (agent, "a")
    assert sub.send("a") == (sub, "a!")
    assert Agent.send(sub, "a") == (sub, "a")
    assert [arguments["to"] for _, arguments in asked] == ["a"] * 6 + ["a!", "a"]
    keyword = asked.pop(2)
    assert keyword[1]["self"] is agent
    assert all("self" not in arguments for _, arguments in asked)


def test_a_function_kept_in_a_class_takes_its_first_argument_for_itself(asked):
    """A class used as a name space has no receiver."""

    class Tools:
        @checkpointed_tool
        def send(to):
            return to

    assert Tools.send("x") == "x"
    assert asked == [("send", {"to": "x"})]


def test_a_static_method_may_take_an_object_of_its_class(asked):
    class Cart:
        @staticmethod
        @checkpointed_tool
        def merge(first, second): ...

    one, two = Cart(), Cart()
    Cart.merge(one, two)

    assert asked == [("merge", {"first": one, "second": two})]


def logged(fn):
    def wrapper(*args, **kwargs):
        return fn(*args, **kwargs)

    return wrapper


def logged_and_named(fn):
    return functools.wraps(fn)(logged(fn))


@pytest.mark.parametrize("other", [logged, logged_and_named, property])
def test_a_method_below_another_decorator_does_not_record_self(asked, other):
    """The other decorator passes the instance as a plain argument."""

    class Agent:
        @other
        @checkpointed_tool
        def state(self):
            return self

    agent = Agent()
    state = agent.state if other is property else agent.state()

    assert state is agent
    assert asked == [("state", {})]


def test_a_function_attached_to_a_class_later_is_a_method(asked):
    @checkpointed_tool
    def send(self, to):
        return self, to

    class Agent:
        pass

    Agent.send = send
    agent = Agent()

    assert agent.send("a") == (agent, "a")
    assert Agent.send(agent, "a") == (agent, "a")
    assert asked == [("send", {"to": "a"})] * 2


def test_abstract_methods_stay_abstract_in_both_orders(asked):
    class Base(abc.ABC):
        @checkpointed_tool
        @abc.abstractmethod
        def one(self): ...

        @abc.abstractmethod
        @checkpointed_tool
        def two(self): ...

        @checkpointed_tool
        @classmethod
        @abc.abstractmethod
        def three(cls): ...

    class Done(Base):
        one = two = three = None

    assert Base.__abstractmethods__ == {"one", "two", "three"}
    with pytest.raises(TypeError, match="abstract"):
        Base()
    Done()


def test_a_property_is_refused():
    with pytest.raises(DecorationError, match="property"):

        class Agent:
            @checkpointed_tool
            @property
            def state(self): ...

    with pytest.raises(DecorationError, match="property"):
        checkpointed_tool(functools.cached_property(len))


def test_a_partial_method_is_decorated_inside(asked):
    class Agent:
        def send(self, to, body): ...

        greet = checkpointed_tool(functools.partialmethod(send, body="hi"))

    Agent().greet("a")

    assert asked == [("send", {"to": "a", "body": "hi"})]


def test_a_callable_object_kept_in_a_class_does_not_bind(asked):
    class Search:
        def __call__(self, query):
            return query

    class Agent:
        search = checkpointed_tool(Search())

    assert Agent().search("q") == "q"
    assert asked == [("Search", {"query": "q"})]


def test_slots_and_metaclass_methods_bind(asked):
    class Meta(type):
        @checkpointed_tool
        def build(cls, size):
            return cls, size

    class Agent(metaclass=Meta):
        __slots__ = ()

        @checkpointed_tool
        def send(self, to):
            return self, to

    agent = Agent()

    assert Agent.build(1) == (Agent, 1)
    assert agent.send("a") == (agent, "a")
    assert asked == [("build", {"size": 1}), ("send", {"to": "a"})]


def test_a_parameter_may_be_called_anything(asked):
    """A wrapper's own parameter names must not be in the way."""

    class Agent:
        @checkpointed_tool
        def send(this, self, wrapped, instance, args, kwargs, owner): ...

    names = dict.fromkeys(["self", "wrapped", "instance", "args", "kwargs", "owner"], 1)
    Agent().send(**names)

    assert asked == [("send", names)]


class Agent:
    """At module level, for pickling by name."""

    def __init__(self, name):
        self.name = name

    @checkpointed_tool
    def send(self, to: str, *, copy: bool = False) -> str:
        """Send it."""
        return f"{self.name}:{to}"

    @checkpointed_tool
    @classmethod
    def make(cls, name):
        return cls(name)

    def plain(self, to: str, *, copy: bool = False) -> str:
        """Send it."""
        raise NotImplementedError


def test_bound_methods_are_real_ones(asked):
    """Frameworks take a bound method apart, and must find the decorated function."""
    agent = Agent("a")

    assert type(agent.send) is types.MethodType
    assert agent.send.__self__ is agent
    assert agent.send == agent.send
    assert agent.send.__func__(agent, "x") == "a:x"
    assert types.MethodType(agent.send.__func__, Agent("b"))("x") == "b:x"
    assert weakref.WeakMethod(agent.send)()("x") == "a:x"
    assert asked == [("send", {"to": "x", "copy": False})] * 3


def test_a_method_is_inspected_as_it_is_undecorated():
    agent = Agent("a")

    for of in (agent, Agent):
        assert inspect.signature(of.send) == inspect.signature(of.plain)
        assert inspect.getfullargspec(of.send) == inspect.getfullargspec(of.plain)
    assert inspect.ismethod(agent.send)
    assert inspect.isfunction(Agent.send)
    assert agent.send.__doc__ == "Send it."
    assert agent.send.__qualname__ == "Agent.send"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_methods_pickle_by_name(protocol, asked):
    agent = Agent("a")

    def again(obj):
        return pickle.loads(pickle.dumps(obj, protocol))

    assert again(Agent.send) is Agent.send
    assert again(agent.send)("x") == "a:x"
    assert again(agent.send.__func__)(agent, "x") == "a:x"
    assert again(Agent.make)("b").name == "b"
    assert len(asked) == 3


def test_methods_copy_with_their_instance(asked):
    agent = Agent("a")
    shallow, deep = copy.copy(agent.send), copy.deepcopy(agent.send)
    agent.name = "b"

    assert shallow("x") == "b:x"
    assert deep("x") == "a:x"
    assert copy.copy(Agent.send) is copy.deepcopy(Agent.send) is Agent.send
    assert len(asked) == 2


def test_an_instance_with_methods_copies_and_pickles(asked):
    agent = Agent("a")

    assert copy.deepcopy(agent).send("x") == "a:x"
    assert pickle.loads(pickle.dumps(agent)).send("x") == "a:x"
    assert len(asked) == 2


def test_decorating_a_bound_method_leaves_the_class_alone(asked):
    """As with ``client.chat.completions.create`` of an SDK."""
    agent = Agent("a")
    plain = checkpointed_tool(agent.plain)
    agent.plain = plain

    with pytest.raises(NotImplementedError):
        agent.plain("x")
    with pytest.raises(NotImplementedError):
        Agent("b").plain("x")

    assert asked == [("plain", {"to": "x", "copy": False})]
