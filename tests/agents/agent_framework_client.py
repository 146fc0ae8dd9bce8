"""A scripted chat client of Microsoft Agent Framework."""

from agent_framework import (
    BaseChatClient,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationLayer,
    Message,
)


class Client(BaseChatClient):
    """Answers each request by how many turns of its own it holds."""

    model = "scripted-1"

    def __init__(self, *, turns, send=lambda turn: None, **more):
        super().__init__(**more)
        self.turns = turns
        self.send = send
        self.http = object()

    def _contents(self, messages):
        assert self.http is not None
        turn = sum(m.role == "assistant" for m in messages)
        self.send(turn)
        said = self.turns[min(turn, len(self.turns) - 1)]
        if isinstance(said, str):
            return [Content.from_text(said)]
        return [
            Content.from_function_call(call_id=id_, name=name, arguments=args)
            for name, args, id_ in said
        ]

    def _inner_get_response(self, *, messages, stream, options, **more):
        if stream:
            return self._build_response_stream(self._updates(messages))
        return self._response(messages)

    async def _response(self, messages):
        message = Message(role="assistant", contents=self._contents(messages))
        return ChatResponse(messages=[message], response_id="resp-1")

    async def _updates(self, messages):
        for content in self._contents(messages):
            if content.type != "text":
                yield ChatResponseUpdate(role="assistant", contents=[content])
                continue
            for word in content.text.split(" "):
                part = Content.from_text(word)
                yield ChatResponseUpdate(role="assistant", contents=[part])


class Scripted(FunctionInvocationLayer, Client):
    """With the framework's own loop around it."""
