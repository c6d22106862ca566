"""One exchange through langchain-openai: whole, streamed, a form, a call. Usage: langchain.py ADDRESS MODEL."""

import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel


class Color(BaseModel):
    """A color."""

    name: str
    is_warm: bool


address, model = sys.argv[1:]
chat = ChatOpenAI(base_url=f"{address}/v1", api_key="none", model=model, temperature=0, max_tokens=60)
whole = chat.invoke("Name three primary colors.")
pieces = list(chat.stream("Name three primary colors."))
assert whole.content and whole.content == "".join(str(piece.content) for piece in pieces)
assert whole.usage_metadata and whole.usage_metadata["output_tokens"] > 0
assert isinstance(chat.with_structured_output(Color).invoke("Describe red."), Color)
called = chat.bind_tools([Color], tool_choice="Color").invoke("Describe red.")
assert called.tool_calls[0]["name"] == "Color"
print("whole, streamed, form, tool")
