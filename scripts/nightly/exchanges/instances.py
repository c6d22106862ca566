"""One exchange through instructor: instances by a tool and by a schema. Usage: instances.py ADDRESS MODEL."""

import sys

import instructor
import openai
from pydantic import BaseModel


class Color(BaseModel):
    """A color."""

    name: str
    is_warm: bool


address, model = sys.argv[1:]
for mode in (instructor.Mode.TOOLS, instructor.Mode.JSON_SCHEMA):
    client = instructor.from_openai(openai.OpenAI(base_url=f"{address}/v1", api_key="none"), mode=mode)
    found = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "Describe the color red: its name, and whether it is warm."}],
        response_model=Color,
        max_tokens=100,
        max_retries=1,
        temperature=0,
    )
    assert isinstance(found, Color)
print("instances by tool, by schema")
