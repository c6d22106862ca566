// Talks to the server: the model's name, and an answer as it grows. Knows nothing of the page.

const KEY = "fucina.key";

// A failure in words, with what to do. `status` is 0 where no server answered.
export class Failure extends Error {
  constructor(status, code, message) {
    super(message);
    this.status = status;
    this.code = code;
  }

  get advice() {
    if (this.status === 0) return "Is the server still running? What you wrote is kept below.";
    if (this.status === 401) return "Enter the key that the server was started with.";
    if (this.status === 429) return "Send again in a moment.";
    if (this.status === 503) return "Send again in a moment.";
    if (this.code === "context_length_exceeded") return "Begin a new chat, or shorten what you wrote.";
    if (this.code === "invalid_constraint") return "Change the JSON schema in the settings.";
    if (this.status < 500) return "Change the message or the settings and send again.";
    return "The server's log tells more.";
  }
}

export function setKey(key) {
  if (key) sessionStorage.setItem(KEY, key);
  else sessionStorage.removeItem(KEY);
}

// The first model's entry in the server's list.
export async function model() {
  const reply = await request("v1/models", {});
  return (await reply.json()).data[0];
}

// Yield {text, reasoning, tokens, finish, usage} for each piece of the answer; throws Failure, or AbortError once stopped.
export async function* answer(body, signal) {
  const reply = await request("v1/chat/completions", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true }, token_details: true }),
    signal,
  });
  for await (const data of events(reply.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Failure(500, chunk.error.code, chunk.error.message);
    const choice = chunk.choices[0] ?? {};
    yield {
      text: choice.delta?.content ?? "",
      reasoning: choice.delta?.reasoning_content ?? "",
      tokens: choice.token_details ?? [],
      finish: choice.finish_reason ?? null,
      usage: chunk.usage ?? null,
    };
  }
  throw new Failure(0, null, "The answer broke off: the connection ended.");
}

async function request(path, options) {
  const key = sessionStorage.getItem(KEY);
  const headers = { ...options.headers, ...(key ? { authorization: `Bearer ${key}` } : {}) };
  let reply;
  try {
    reply = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, null, "The server cannot be reached.");
  }
  if (reply.ok) return reply;
  const said = await reply.json().then((body) => body.error, () => null);
  throw new Failure(reply.status, said?.code ?? null, said?.message ?? `The server answered ${reply.status}.`);
}

// The data of server-sent events; comments keep the connection alive and say nothing.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const frames = (rest + value).split("\n\n");
      rest = frames.pop();
      for (const frame of frames) if (frame.startsWith("data: ")) yield frame.slice(6);
    }
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(0, null, "The answer broke off: the connection ended.");
  } finally {
    reader.cancel().catch(() => {});
  }
}
