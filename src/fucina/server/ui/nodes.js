// Markdown to DOM nodes, for text that nobody vouches for: nodes and text only, never markup; links only to http(s).
//
// `marks` has a letter for each character of the answer: m from the model, d from a draft, g from the grammar.
// Time is linear in the text: marks that find no end are remembered, windows and depths are bounded.

import { MAX_DEPTH, blocks, joined, linesOf } from "./markdown.js";

const ORIGINS = { d: ["draft", "from an accepted draft"], g: ["grammar", "forced by the grammar"] };
const MAX_LINK = 2000;

// Shows a growing answer in `root`; what does not change any more is left alone, selections included.
export class MarkdownView {
  constructor(root) {
    this.root = root;
    this.shown = [];
  }

  // `isJson`: the whole answer is code, no markdown.
  show(text, marks, isJson = false) {
    const lines = linesOf(text);
    const all = isJson ? [{ kind: "code", language: "json", lines }] : blocks(lines);
    const keys = all.map((block) => `${block.kind} ${block.from} ${block.to}`);
    let same = 0;
    while (same < Math.min(all.length, this.shown.length) - 1 && keys[same] === this.shown[same]) same++;
    while (this.root.childNodes.length > same) this.root.lastChild.remove();
    for (const block of all.slice(same)) this.root.append(render(block, marks));
    this.shown = keys;
  }
}

export function element(name, ...children) {
  const node = document.createElement(name);
  node.append(...children);
  return node;
}

function render(block, marks) {
  switch (block.kind) {
    case "code":
      return code(block, marks);
    case "heading":
      return inline(element(`h${Math.min(block.level + 2, 6)}`), block.content, marks);
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", ...block.children.map((child) => render(child, marks)));
    case "list":
      return listNode(block, marks);
    case "table":
      return tableNode(block, marks);
    default:
      return inline(element("p"), block.content, marks);
  }
}

function code(block, marks) {
  const content = joined(block.lines);
  const inner = element("code");
  tinted(inner, content, marks);
  const copy = element("button", "Copy");
  copy.type = "button";
  copy.dataset.copies = content.text;
  const bar = element("div", element("span", block.language), copy);
  bar.className = "code-bar";
  const node = element("div", bar, element("pre", inner));
  node.className = "code-block";
  return node;
}

function listNode(block, marks) {
  const node = element(block.start === null ? "ul" : "ol");
  if (block.start !== null) node.start = block.start;
  for (const children of block.items) {
    const item = element("li");
    for (const child of children) {
      if (child.kind === "paragraph") inline(item.lastChild ? item.appendChild(element("p")) : item, child.content, marks);
      else item.append(render(child, marks));
    }
    node.append(item);
  }
  return node;
}

function tableNode(block, marks) {
  const row = (name, line) =>
    element("tr", ...line.map((cell, i) => {
      const node = inline(element(name), cell, marks);
      node.className = block.sides[i];
      return node;
    }));
  const node = element("table", element("thead", row("th", block.head)), element("tbody", ...block.rows.map((line) => row("td", line))));
  const frame = element("div", node);
  frame.className = "table-frame";
  return frame;
}

// Text with its origins.
function tinted(parent, stretch, marks) {
  const { text, at } = stretch;
  let from = 0;
  while (from < text.length) {
    const mark = marks[at[from]];
    let to = from + 1;
    while (to < text.length && marks[at[to]] === mark) to++;
    const origin = ORIGINS[mark];
    if (origin) {
      const span = element("span", text.slice(from, to));
      [span.className, span.title] = origin;
      parent.append(span);
    } else {
      parent.append(text.slice(from, to));
    }
    from = to;
  }
}

// ---- inline

// `closed` has the marks that cannot begin anything in what follows.
function inline(parent, stretch, marks, depth = 0, closed = new Set()) {
  const { text } = stretch;
  let plain = 0;
  let i = 0;
  while (i < text.length) {
    const found = depth < MAX_DEPTH ? piece(stretch, i, marks, depth, closed) : null;
    if (!found) {
      i++;
      continue;
    }
    tinted(parent, stretch.slice(plain, i), marks);
    if (found.node) parent.append(found.node);
    plain = found.next;
    i = found.resume ?? found.next;
  }
  tinted(parent, stretch.slice(plain), marks);
  return parent;
}

// What begins at `i`: {node, next} with the place behind it, or {next, resume} for plain text up to `resume`, or null.
function piece(stretch, i, marks, depth, closed) {
  const { text } = stretch;
  switch (text[i]) {
    case "\\":
      return /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "") ? { next: i + 1, resume: i + 2 } : null;
    case "`":
      return codeSpan(stretch, i, marks, closed);
    case "*":
    case "_":
    case "~":
      return emphasis(stretch, i, marks, depth, closed);
    case "!":
    case "[":
      return closed.has("link") ? null : link(stretch, i, marks, depth);
    case "h":
      return closed.has("link") ? null : bareLink(stretch, i, marks);
    default:
      return null;
  }
}

function codeSpan(stretch, i, marks, closed) {
  const { text } = stretch;
  const n = runLength(text, i);
  const mark = "`".repeat(n);
  let end = closed.has(mark) ? -1 : text.indexOf(mark, i + n);
  while (end >= 0 && text[end + n] === "`") end = text.indexOf(mark, end + runLength(text, end));
  if (end < 0) {
    closed.add(mark);
    return { next: i, resume: i + n };
  }
  const node = element("code");
  tinted(node, stretch.slice(i + n, end), marks);
  return { node, next: end + n };
}

function runLength(text, i) {
  let n = 1;
  while (text[i + n] === text[i]) n++;
  return n;
}

function emphasis(stretch, i, marks, depth, closed) {
  const { text } = stretch;
  const letter = text[i];
  const n = text[i + 1] === letter ? 2 : 1;
  const mark = letter.repeat(n);
  const isWord = (k) => /[\p{L}\p{N}]/u.test(text[k] ?? "");
  if (closed.has(mark) || (letter === "~" && n === 1)) return null;
  if (/\s/.test(text[i + n] ?? " ") || (letter === "_" && isWord(i - 1))) return null;
  let end = text.indexOf(mark, i + n + 1);
  while (end >= 0) {
    const isLonger = n === 1 && (text[end + 1] === letter || text[end - 1] === letter);
    if (!isLonger && !/\s/.test(text[end - 1]) && !(letter === "_" && isWord(end + n))) break;
    end = text.indexOf(mark, end + (isLonger && text[end + 1] === letter ? 2 : 1));
  }
  if (end < 0) {
    closed.add(mark);
    return null;
  }
  if (n === 2 && text[end + 2] === letter) end++; // ***both***: the inner one ends first
  const inner = new Set(closed.has("link") ? ["link"] : []);
  const name = letter === "~" ? "del" : n === 2 ? "strong" : "em";
  return { node: inline(element(name), stretch.slice(i + n, end), marks, depth + 1, inner), next: end + n };
}

// [text](address), and ![text](address), which is not loaded but linked to.
function link(stretch, i, marks, depth) {
  const { text } = stretch;
  const open = text[i] === "!" ? i + 1 : i;
  if (text[open] !== "[") return null;
  const near = text.slice(open, open + MAX_LINK);
  const middle = near.indexOf("](");
  const end = middle < 0 ? -1 : near.indexOf(")", middle);
  if (end < 0 || near.slice(1, middle).includes("[")) return null;
  const address = safeAddress(near.slice(middle + 2, end).trim().split(/\s/)[0].replace(/^<|>$/g, ""));
  if (!address) return null;
  const node = anchor(address);
  inline(node, stretch.slice(open + 1, open + middle), marks, depth + 1, new Set(["link"]));
  return { node, next: open + end + 1 };
}

function bareLink(stretch, i, marks) {
  const { text } = stretch;
  if (!text.startsWith("http://", i) && !text.startsWith("https://", i)) return null;
  const word = /^[^\s<>"'`|\\()[\]{}*]+/.exec(text.slice(i, i + MAX_LINK))[0].replace(/[.,;:!?]$/, "");
  const address = safeAddress(word);
  if (!address) return null;
  const node = anchor(address);
  tinted(node, stretch.slice(i, i + word.length), marks);
  return { node, next: i + word.length };
}

function safeAddress(text) {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    return new URL(text).href;
  } catch {
    return null;
  }
}

function anchor(address) {
  const node = element("a");
  node.href = address;
  node.title = address;
  node.target = "_blank";
  node.rel = "noopener noreferrer nofollow";
  return node;
}
