"""One exchange through the llm command: a model of its configuration file. Usage: llm_cli.py ADDRESS MODEL."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

address, model = sys.argv[1:]
with tempfile.TemporaryDirectory() as home:
    entry = f"- model_id: here\n  model_name: {model}\n  api_base: {address}/v1\n  api_key_name: here\n"
    (Path(home) / "extra-openai-models.yaml").write_text(entry)
    for options in ((), ("--no-stream",), ("--system", "Be brief.")):
        command = [Path(sys.executable).with_name("llm"), "-m", "here", "--key", "none", "-o", "temperature", "0"]
        command += ["-o", "max_tokens", "24", *options, "Name three primary colors."]
        done = subprocess.run(
            command, env={**os.environ, "LLM_USER_PATH": home}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0 and done.stdout.strip(), done.stderr
print("streamed, whole, system prompt")
