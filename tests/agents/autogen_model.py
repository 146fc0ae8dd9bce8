"""A scripted model client of AutoGen."""

import json

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    ChatCompletionClient,
    CreateResult,
    ModelInfo,
    RequestUsage,
)


class Scripted(ChatCompletionClient):
    """Answers each request by how many turns of its own it holds."""

    def __init__(self, turns, send=lambda turn: None):
        self.turns = turns
        self.send = send
        self.client = object()
        self.seen = []

    def _answer(self, messages):
        turn = sum(isinstance(m, AssistantMessage) for m in messages)
        self.send(turn)
        self.seen.append(results(messages))
        said = self.turns[min(turn, len(self.turns) - 1)]
        if not isinstance(said, str):
            said = [
                FunctionCall(id=id_, name=name, arguments=json.dumps(args))
                for name, args, id_ in said
            ]
        return CreateResult(
            finish_reason="stop" if isinstance(said, str) else "function_calls",
            content=said,
            usage=RequestUsage(prompt_tokens=3, completion_tokens=2),
            cached=False,
        )

    async def create(
        self,
        messages,
        *,
        tools=(),
        tool_choice="auto",
        json_output=None,
        extra_create_args=None,
        cancellation_token=None,
    ):
        assert self.client is not None
        return self._answer(messages)

    async def create_stream(self, messages, **more):
        result = self._answer(messages)
        if isinstance(result.content, str):
            for word in result.content.split(" "):
                yield word
        yield result

    async def close(self):
        pass

    def actual_usage(self):
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    total_usage = actual_usage

    def count_tokens(self, messages, **more):
        return 0

    def remaining_tokens(self, messages, **more):
        return 0

    @property
    def capabilities(self):
        return self.model_info

    @property
    def model_info(self):
        return ModelInfo(
            vision=False,
            function_calling=True,
            json_output=True,
            family="unknown",
            structured_output=True,
        )


def results(messages):
    """What the model was shown, by the id of the call."""
    return {
        each.call_id: each.content
        for message in messages
        if message.type == "FunctionExecutionResultMessage"
        for each in message.content
    }
