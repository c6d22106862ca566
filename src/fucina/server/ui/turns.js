// What is said, on the page: a question, and an answer that grows and then tells how it was made.

import { MarkdownView, element as plain } from "./nodes.js";

const LETTERS = { model: "m", draft: "d", grammar: "g" };
const NAMES = { model: "model", draft: "accepted drafts", grammar: "grammar" };

function element(name, className, ...children) {
  const node = plain(name, ...children);
  node.className = className;
  return node;
}

function button(label, act) {
  const node = plain("button", label);
  node.type = "button";
  node.addEventListener("click", act);
  return node;
}

const percent = (part, whole) => Math.round((100 * part) / Math.max(whole, 1));

// What the user said. `edit` is called to change it.
export class Question {
  role = "user";

  constructor(text, edit) {
    this.text = text;
    this.node = element("article", "question", element("div", "actions", button("Edit", () => edit(this))), element("div", "bubble", text));
    this.node.setAttribute("aria-label", "You");
  }
}

// What the model says. `again` is called to ask once more.
export class Answer {
  role = "assistant";
  text = "";
  thoughts = "";
  marks = ""; // a letter for each character of the text: where its token came from
  counts = { model: 0, draft: 0, grammar: 0 };
  finish = null;
  usage = null;
  firstAt = null;
  lastAt = null;

  constructor(name, isJson, again) {
    this.isJson = isJson;
    this.askedAt = performance.now();
    this.thoughtsBody = plain("div");
    this.thoughtsNode = element("details", "thoughts", plain("summary", "Thoughts"), this.thoughtsBody);
    this.thoughtsNode.hidden = true;
    this.body = element("div", "body");
    this.view = new MarkdownView(this.body);
    this.facts = element("div", "facts");
    this.actions = element("div", "actions", button("Copy", () => {}), button("Regenerate", again));
    this.actions.hidden = true;
    this.node = element("article", "answer growing", this.thoughtsNode, this.body, this.facts, this.actions);
    this.node.setAttribute("aria-label", name);
  }

  get isEmpty() {
    return !this.text && !this.thoughts;
  }

  get nTokens() {
    return this.counts.model + this.counts.draft + this.counts.grammar;
  }

  // Tokens per second since the first one.
  get pace() {
    const seconds = (this.lastAt - this.firstAt) / 1000;
    return this.nTokens > 1 && seconds > 0 ? (this.nTokens - 1) / seconds : null;
  }

  // Take a piece of the answer.
  add({ text, reasoning, tokens, finish, usage }) {
    this.text += text;
    this.thoughts += reasoning;
    this.marks += marksOf(text, tokens);
    for (const { origin } of tokens) if (origin in this.counts) this.counts[origin]++;
    if (tokens.length || text || reasoning) {
      this.lastAt = performance.now();
      this.firstAt ??= this.lastAt;
    }
    this.finish = finish ?? this.finish;
    this.usage = usage ?? this.usage;
  }

  draw() {
    this.thoughtsNode.hidden = !this.thoughts;
    this.thoughtsBody.textContent = this.thoughts;
    this.view.show(this.text, this.marks, this.isJson);
  }

  // It has ended: `how` says why where it did not end by itself.
  end(how) {
    this.draw();
    this.node.classList.remove("growing");
    this.actions.hidden = false;
    this.actions.firstChild.dataset.copies = this.text;
    const reason = how ?? (this.finish === "length" ? "cut off at the most tokens" : "");
    this.facts.replaceChildren(...this.numbers(reason), this.shares());
  }

  numbers(reason) {
    const pace = this.usage?.timings?.decode_tok_per_s || this.pace;
    const found = [];
    const fact = (className, ...children) => found.push(element("span", className, ...children));
    if (reason) fact("reason", reason);
    if (pace) fact("pace", plain("b", pace.toFixed(pace < 10 ? 1 : 0)), " tok/s");
    fact("tokens", plain("b", String(this.usage?.completionTokens ?? this.nTokens)), " tokens");
    if (this.firstAt !== null) fact("first", "first after ", plain("b", String(Math.round(this.firstAt - this.askedAt))), " ms");
    if (this.usage) found.push(cachedShare(this.usage));
    // what the grammar forces counts as drafted too, and has its own color
    const tried = (this.usage?.speculation?.drafted ?? 0) - (this.usage?.speculation?.forced ?? 0);
    if (tried > 0) fact("drafts", "drafts ", plain("b", `${this.counts.draft}/${Math.max(tried, this.counts.draft)}`), " accepted");
    return found;
  }

  shares() {
    const bar = element("span", "bar");
    const legend = element("span", "legend");
    for (const [origin, n] of Object.entries(this.counts)) {
      if (!n) continue;
      const part = element("i", origin);
      part.style.flexGrow = n;
      bar.append(part);
      legend.append(element("span", origin, `${NAMES[origin]} `, plain("b", `${percent(n, this.nTokens)}%`)));
    }
    bar.setAttribute("aria-hidden", "true");
    return element("div", "shares", bar, legend);
  }
}

// How much of the prompt did not have to be read again, as a small bar.
function cachedShare({ prompt_tokens: n, prompt_tokens_details: { cached_tokens: cached } }) {
  const filled = plain("i");
  filled.style.width = `${percent(cached, n)}%`;
  const bar = element("span", "meter", filled);
  bar.setAttribute("aria-hidden", "true");
  const node = element("span", "prompt", "prompt ", plain("b", String(n)), " ", bar, " ", plain("b", `${percent(cached, n)}%`), " cached");
  node.title = `${cached} of the prompt's ${n} tokens were in the cache`;
  return node;
}

// A letter for each character of a piece: its tokens' origins where they tell the same text.
function marksOf(text, tokens) {
  if (tokens.map((token) => token.text).join("") === text) {
    return tokens.map((token) => (LETTERS[token.origin] ?? "m").repeat(token.text.length)).join("");
  }
  return (LETTERS[tokens[0]?.origin] ?? "m").repeat(text.length);
}
