"""A scripted model of the OpenAI Agents SDK, and what it answers."""

import json

from agents import Model, ModelResponse, Usage
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
    ResponseUsage,
)
from openai.types.responses.response_usage import (
    InputTokensDetails,
    OutputTokensDetails,
)


def calls(*asked):
    """A turn that calls tools: (name, arguments, id)."""
    return [
        ResponseFunctionToolCall(
            type="function_call",
            name=name,
            call_id=id_,
            arguments=args if isinstance(args, str) else json.dumps(args),
        )
        for name, args, id_ in asked
    ]


def says(text):
    """A turn that says a text."""
    part = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [
        ResponseOutputMessage(
            id="msg-1",
            type="message",
            role="assistant",
            status="completed",
            content=[part],
        )
    ]


def outputs(given):
    """What the tools gave, by the id of their call."""
    items = given if isinstance(given, list) else []
    return {
        each["call_id"]: each["output"]
        for each in items
        if each.get("type") == "function_call_output"
    }


def turn_of(given):
    """How many turns of the model a request holds."""
    items = given if isinstance(given, list) else []
    turns, inside = 0, False
    for each in items:
        model = each.get("role") == "assistant" or each.get("type") == "function_call"
        turns += model and not inside
        inside = model
    return turns


class Scripted(Model):
    """Answers each request by how many turns of its own it holds."""

    model = "scripted-1"

    def __init__(self, turns, send=lambda turn: None):
        self.turns = turns
        self.send = send
        self.client = object()
        self.seen = []

    def _answer(self, given):
        turn = turn_of(given)
        self.send(turn)
        self.seen.append(outputs(given))
        return self.turns[min(turn, len(self.turns) - 1)]

    async def get_response(  # noqa: PLR0917 - the SDK's
        self,
        system_instructions,
        input,
        model_settings,
        tools,
        output_schema,
        handoffs,
        tracing,
        *,
        previous_response_id,
        conversation_id,
        prompt,
    ):
        assert self.client is not None
        usage = Usage(requests=1, input_tokens=3, output_tokens=2, total_tokens=5)
        return ModelResponse(
            output=self._answer(input), usage=usage, response_id="resp-1"
        )

    async def stream_response(
        self, system_instructions, input, model_settings, *args, **more
    ):
        output = self._answer(input)
        for number, text in enumerate(_texts(output)):
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                item_id="msg-1",
                output_index=0,
                content_index=0,
                sequence_number=number,
                delta=text,
                logprobs=[],
            )
        yield ResponseCompletedEvent(
            type="response.completed", sequence_number=9, response=_response(output)
        )


def _texts(output):
    for item in output:
        if item.type == "message":
            yield from item.content[0].text.split(" ")


def _response(output):
    return Response(
        id="resp-1",
        object="response",
        created_at=1,
        model="scripted-1",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        status="completed",
        usage=ResponseUsage(
            input_tokens=3,
            output_tokens=2,
            total_tokens=5,
            input_tokens_details=InputTokensDetails(
                cached_tokens=0, cache_write_tokens=0
            ),
            output_tokens_details=OutputTokensDetails(reasoning_tokens=0),
        ),
    )
