// The page: what is written, asked, shown, stopped and set.

import { Failure, answer, model, setKey } from "./client.js";
import { load, save, wanted } from "./settings.js";
import { Answer, Question } from "./turns.js";

const $ = (id) => document.getElementById(id);
const IDEAS = [
  "Explain in a few sentences how a rainbow forms.",
  "Write a Python function that reverses a string, then the same function with type hints.",
  "Make a table of three metals, their symbols and what they are used for.",
];

const settings = load();
const turns = []; // Question, Answer, Question, Answer, ...
let modelName = null;
let running = null; // the AbortController of the answer that grows
let edited = null; // the question that is being changed

// ---- asking

async function connect() {
  try {
    const entry = await model();
    modelName = entry.id;
    $("model").textContent = document.title = modelName;
    $("context").textContent = entry.context_length ? `${entry.context_length.toLocaleString("en")} tokens of context` : "";
    tell(null);
  } catch (error) {
    tell(error);
    if (error.status === 503 || error.status === 0) setTimeout(connect, 2000);
  }
}

// Ask `text` in place of the turns from number `from` on, which come back where no answer begins. True where one did.
async function ask(text, from) {
  let options;
  try {
    options = wanted(settings);
  } catch (error) {
    openSettings(error.message);
    return false;
  }
  if (modelName === null) await connect();
  if (modelName === null) return false;
  const replaced = turns.splice(from);
  for (const turn of replaced) turn.node.remove();
  const question = new Question(text, edit);
  const reply = new Answer(modelName, "response_format" in options, again);
  append(question, reply);
  tell(null);
  const failure = await grow(reply, { ...options, model: modelName, messages: messages(turns.slice(0, -1)) });
  if (!reply.isEmpty || !failure) return true;
  for (const turn of turns.splice(from)) turn.node.remove();
  append(...replaced);
  return false;
}

// Let an answer grow to its end; gives what went wrong, if something did: stopping counts.
async function grow(reply, body) {
  running = new AbortController();
  showRunning(true);
  let frame = null;
  let failure = null;
  try {
    for await (const piece of answer(body, running.signal)) {
      reply.add(piece);
      frame ??= requestAnimationFrame(() => {
        frame = null;
        keepingBottom(() => reply.draw());
        $("live").textContent = reply.pace ? `${reply.pace.toFixed(0)} tok/s` : "";
      });
    }
  } catch (error) {
    failure = error;
  }
  cancelAnimationFrame(frame);
  running = null;
  const isStopped = failure?.name === "AbortError";
  keepingBottom(() => reply.end(isStopped ? "stopped" : failure ? "broke off" : null));
  showRunning(false);
  $("status").textContent = isStopped ? "Stopped." : failure ? "" : `Answered in ${reply.nTokens} tokens.`;
  if (failure && !isStopped) tell(failure);
  return failure;
}

function messages(said) {
  const system = settings.system.trim() ? [{ role: "system", content: settings.system }] : [];
  return [...system, ...said.map(({ role, text }) => ({ role, content: text }))];
}

// ---- acting

async function send() {
  const text = $("prompt").value.trim();
  if (!text || running) return;
  const from = edited ? turns.indexOf(edited) : turns.length;
  endEdit();
  write("");
  if (!(await ask(text, from)) && !$("prompt").value) write(text);
}

function again() {
  if (running) return;
  endEdit();
  ask(turns.at(-2).text, turns.length - 2);
}

function edit(question) {
  if (running) return;
  edited = question;
  $("editing").hidden = false;
  for (const [i, turn] of turns.entries()) turn.node.classList.toggle("replaced", i >= turns.indexOf(question));
  write(question.text);
  $("prompt").focus();
}

function endEdit() {
  edited = null;
  $("editing").hidden = true;
  for (const turn of turns) turn.node.classList.remove("replaced");
}

function clear() {
  running?.abort();
  endEdit();
  for (const turn of turns.splice(0)) turn.node.remove();
  $("welcome").hidden = false;
  tell(null);
  $("prompt").focus();
}

async function copy(control) {
  const text = control.dataset.copies;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
  control.textContent = "Copied";
  setTimeout(() => (control.textContent = "Copy"), 1500);
}

// Where the page came over plain HTTP from another machine, browsers have no clipboard for it.
function copyBySelection(text) {
  const area = document.createElement("textarea");
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

// ---- showing

function append(...added) {
  turns.push(...added);
  $("welcome").hidden = turns.length > 0;
  $("messages").append(...added.map((turn) => turn.node));
  $("scroller").scrollTop = $("scroller").scrollHeight;
}

function showRunning(isRunning) {
  $("send").hidden = isRunning;
  $("stop").hidden = !isRunning;
  $("messages").setAttribute("aria-busy", String(isRunning));
  $("live").textContent = "";
  if (isRunning) $("status").textContent = "Answering.";
  document.body.classList.toggle("running", isRunning);
  if (document.activeElement === document.body) $("prompt").focus();
}

// Change the page; who read its end goes on reading its end.
function keepingBottom(change) {
  const scroller = $("scroller");
  const isAtBottom = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 60;
  change();
  if (isAtBottom) scroller.scrollTop = scroller.scrollHeight;
}

// Say what went wrong and what to do; null takes it back.
function tell(error) {
  $("notice").hidden = error === null;
  $("notice").textContent = error === null ? "" : [error.message, error instanceof Failure ? error.advice : ""].join(" ").trim();
  $("key-form").hidden = error?.status !== 401;
  if (error?.status === 401) $("key").focus();
}

function write(text) {
  $("prompt").value = text;
  fit();
}

function fit() {
  const area = $("prompt");
  area.style.height = "auto";
  area.style.height = `${area.scrollHeight}px`;
}

// ---- settings

function fields() {
  return [...$("settings-form").elements].filter((field) => field.name);
}

function openSettings(problem = "") {
  for (const field of fields()) field.value = settings[field.name];
  $("settings-error").textContent = problem;
  $("settings").showModal();
}

function takeSettings() {
  for (const field of fields()) settings[field.name] = field.value;
  save(settings);
  try {
    wanted(settings);
    $("settings-error").textContent = "";
    return true;
  } catch (error) {
    $("settings-error").textContent = error.message;
    return false;
  }
}

function resetSettings() {
  for (const field of fields()) field.value = "";
  takeSettings();
}

function showOrigins() {
  settings.origins = $("origins").checked;
  document.body.classList.toggle("origins", settings.origins);
  save(settings);
}

// ---- listening

$("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  send();
});
$("prompt").addEventListener("input", fit);
$("prompt").addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send();
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape" || $("settings").open) return;
  if (running) {
    running.abort();
  } else if (edited) {
    endEdit();
    write("");
  }
});
document.addEventListener("click", (event) => {
  if (event.target instanceof HTMLElement && "copies" in event.target.dataset) copy(event.target);
});
$("stop").addEventListener("click", () => running?.abort());
$("cancel-edit").addEventListener("click", () => {
  endEdit();
  write("");
});
$("clear").addEventListener("click", clear);
$("origins").addEventListener("change", showOrigins);
$("open-settings").addEventListener("click", () => openSettings());
$("reset-settings").addEventListener("click", resetSettings);
$("settings-form").addEventListener("input", takeSettings);
$("settings-form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (takeSettings()) $("settings").close();
});
$("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  setKey($("key").value.trim());
  $("key").value = "";
  connect();
  $("prompt").focus();
});

for (const idea of IDEAS) {
  const control = document.createElement("button");
  control.type = "button";
  control.textContent = idea;
  control.addEventListener("click", () => {
    write(idea);
    send();
  });
  $("ideas").append(control);
}
$("origins").checked = settings.origins;
showOrigins();
connect();
