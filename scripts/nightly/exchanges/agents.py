"""One exchange through pydantic-ai: whole, streamed, typed; chat and responses. Usage: agents.py ADDRESS MODEL."""

import asyncio
import sys

from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider


class Color(BaseModel):
    """A color."""

    name: str
    is_warm: bool


async def main(address: str, name: str) -> None:
    """Ask on both of OpenAI's paths."""
    provider = OpenAIProvider(base_url=f"{address}/v1", api_key="none")
    settings = {"temperature": 0.0, "max_tokens": 80}
    for model in (OpenAIChatModel(name, provider=provider), OpenAIResponsesModel(name, provider=provider)):
        agent = Agent(model, model_settings=settings)
        whole = await agent.run("Name three primary colors.")
        async with agent.run_stream("Name three primary colors.") as answer:
            assert await answer.get_output() == whole.output != ""
        typed = Agent(model, output_type=NativeOutput(Color), model_settings=settings)
        assert isinstance((await typed.run("Describe red.")).output, Color)
        by_tool = Agent(model, output_type=Color, model_settings=settings)
        assert isinstance((await by_tool.run("Describe red.")).output, Color)
    print("whole, streamed, native output, tool output; chat and responses")


asyncio.run(main(*sys.argv[1:]))
