"""A server as a process of its own, and OpenAI's client against it: an answer token by token, and one in a form.

Needs `pip install 'fucina[server]' openai`.
"""

import json
import subprocess
import sys
from typing import Literal

import openai
from pydantic import BaseModel


class Color(BaseModel):
    """What the second answer must look like."""

    name: Literal["red", "green", "blue"]
    is_warm: bool


command = [sys.executable, "-m", "fucina", "serve", "smollm2", "--port", "0", "--log-format", "json"]
server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
try:
    address = next(line["address"] for line in map(json.loads, server.stderr) if "address" in line)
    with openai.OpenAI(base_url=f"{address}/v1", api_key="none") as client:
        question = [{"role": "user", "content": "Name a warm color."}]
        asked = {"model": "smollm2", "messages": question, "temperature": 0, "max_tokens": 40}
        for chunk in client.chat.completions.create(**asked, stream=True):
            print(chunk.choices[0].delta.content or "", end="", flush=True)
        reply = client.chat.completions.parse(**asked, response_format=Color)
        print("\n", reply.choices[0].message.parsed)
finally:
    server.terminate()
    server.communicate()
