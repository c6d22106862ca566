"""A server as a process of its own, and OpenAI's client against it: an answer token by token, and one in a form.

Needs `pip install 'fucina[server]' openai`.
"""

import json
import subprocess
import sys

import openai
from pydantic import BaseModel


class Colors(BaseModel):
    """What the second answer must look like."""

    colors: list[str]


command = [sys.executable, "-m", "fucina", "serve", "smollm2", "--port", "0", "--log-format", "json"]
with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
    address = next(line["address"] for line in map(json.loads, server.stderr) if "address" in line)
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        question = [{"role": "user", "content": "Name three primary colors."}]
        asked = {"model": "smollm2", "messages": question, "temperature": 0, "max_tokens": 60}
        for chunk in client.chat.completions.create(**asked, stream=True):
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        print("\n")
        reply = client.chat.completions.parse(**asked, response_format=Colors)
        print(reply.choices[0].message.parsed)
    server.terminate()
    assert server.wait() == 0
