// The blocks of a markdown text: headings, lists, code, quotes, tables, paragraphs. Makes no nodes.
//
// Each character keeps its place in the whole text, whatever the markdown around it. Depth is bounded.

export const MAX_DEPTH = 8;

// A stretch of the text, and the place of each of its characters.
export class Stretch {
  constructor(text, at) {
    this.text = text;
    this.at = at;
  }

  slice(from, to = this.text.length) {
    return new Stretch(this.text.slice(from, to), this.at.slice(from, to));
  }

  get indent() {
    return this.text.length - this.text.trimStart().length;
  }

  get isBlank() {
    return !this.text.trim();
  }
}

export function linesOf(text) {
  let start = 0;
  return text.split("\n").map((line) => {
    const from = start;
    start += line.length + 1;
    return new Stretch(line, Array.from({ length: line.length }, (_, i) => from + i));
  });
}

// Each block as {kind, from, to, ...}, with the lines it spans.
export function blocks(lines, depth = 0) {
  const found = [];
  let i = 0;
  while (i < lines.length) {
    if (lines[i].isBlank) {
      i++;
      continue;
    }
    const nested = depth < MAX_DEPTH ? [quote, list] : [];
    const kinds = [fence, heading, rule, table, ...nested, paragraph];
    const [block, next] = first(kinds, (kind) => kind(lines, i, depth));
    found.push(Object.assign(block, { from: i, to: next }));
    i = next;
  }
  return found;
}

function first(kinds, attempt) {
  for (const kind of kinds) {
    const found = attempt(kind);
    if (found) return found;
  }
}

function fence(lines, i) {
  const opening = /^ {0,3}(`{3,}|~{3,})(.*)$/.exec(lines[i].text);
  if (!opening || opening[2].includes("`")) return null;
  const [, mark, info] = opening;
  const indent = lines[i].indent;
  let end = i + 1;
  while (end < lines.length && !isFenceEnd(lines[end].text, mark)) end++;
  const inner = lines.slice(i + 1, end).map((line) => line.slice(Math.min(indent, line.indent)));
  return [{ kind: "code", language: info.trim().split(/\s/)[0].slice(0, 30), lines: inner }, Math.min(end + 1, lines.length)];
}

function isFenceEnd(text, mark) {
  const line = text.trim();
  return line.length >= mark.length && line === mark[0].repeat(line.length);
}

function heading(lines, i) {
  const match = /^ {0,3}(#{1,6})[ \t]/.exec(lines[i].text);
  if (!match) return null;
  const content = trim(lines[i].slice(match[0].length));
  let end = content.text.length;
  while (content.text[end - 1] === "#") end--;
  return [{ kind: "heading", level: match[1].length, content: trim(content.slice(0, end)) }, i + 1];
}

function rule(lines, i) {
  return /^(-{3,}|\*{3,}|_{3,})$/.test(lines[i].text.replace(/[ \t]/g, "")) ? [{ kind: "rule" }, i + 1] : null;
}

function quote(lines, i, depth) {
  const inner = [];
  let end = i;
  while (end < lines.length && lines[end].text.trimStart().startsWith(">")) {
    const after = lines[end].indent + 1;
    inner.push(lines[end].slice(after + (lines[end].text[after] === " " ? 1 : 0)));
    end++;
  }
  return end > i ? [{ kind: "quote", children: blocks(inner, depth + 1) }, end] : null;
}

function marker(line) {
  const match = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)/.exec(line.text);
  if (!match) return null;
  const isOrdered = match[2].length > 1;
  const width = match[1].length + match[2].length + (match[3].length > 4 ? 1 : match[3].length);
  return { indent: match[1].length, width, kind: isOrdered ? match[2].at(-1) : match[2], start: isOrdered ? parseInt(match[2]) : null };
}

function list(lines, i, depth) {
  const first = marker(lines[i]);
  if (!first) return null;
  const items = [];
  let end = i;
  while (end < lines.length) {
    const mark = marker(lines[end]);
    if (!mark || mark.kind !== first.kind || mark.indent > first.indent + 1 || rule(lines, end)) break;
    const [inner, next] = item(lines, end, mark);
    items.push(blocks(inner, depth + 1));
    end = next;
  }
  return items.length ? [{ kind: "list", start: first.start, items }, end] : null;
}

// One item's lines: what is indented behind its marker, and lines that go on with its paragraph.
function item(lines, i, mark) {
  const inner = [lines[i].slice(Math.min(mark.width, lines[i].text.length))];
  let end = i + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    if (line.isBlank) {
      const next = lines.slice(end, end + 3).find((one) => !one.isBlank);
      if (!next || (next.indent < mark.indent + 2 && !isSibling(next, mark))) break;
      inner.push(line);
    } else if (line.indent >= mark.indent + 2) {
      inner.push(line.slice(Math.min(line.indent, mark.width)));
    } else if (marker(line) || isStart(lines, end) || lines[end - 1].isBlank) {
      break;
    } else {
      inner.push(line);
    }
  }
  return [inner, end];
}

function isSibling(line, mark) {
  const other = marker(line);
  return other !== null && other.kind === mark.kind && other.indent <= mark.indent + 1;
}

function isStart(lines, i) {
  return Boolean(fence(lines.slice(i, i + 1), 0) || heading(lines, i) || rule(lines, i) || lines[i].text.trimStart().startsWith(">"));
}

function table(lines, i) {
  if (!lines[i].text.includes("|") || i + 1 >= lines.length) return null;
  const under = cells(lines[i + 1]).map((cell) => cell.text);
  const head = cells(lines[i]);
  if (under.length !== head.length || !lines[i + 1].text.includes("-") || !under.every((text) => /^:?-+:?$/.test(text))) return null;
  let end = i + 2;
  while (end < lines.length && lines[end].text.includes("|")) end++;
  const sides = under.map((text) => (text.endsWith(":") ? (text.startsWith(":") ? "center" : "end") : "start"));
  const rows = lines.slice(i + 2, end).map((line) => cells(line).slice(0, head.length));
  return [{ kind: "table", sides, head, rows }, end];
}

function cells(line) {
  const found = [];
  let from = line.indent + (line.text.trimStart().startsWith("|") ? 1 : 0);
  for (let k = from; k < line.text.length; k++) {
    if (line.text[k] !== "|" || line.text[k - 1] === "\\") continue;
    found.push(trim(line.slice(from, k)));
    from = k + 1;
  }
  const last = trim(line.slice(from));
  return last.text ? [...found, last] : found;
}

function paragraph(lines, i) {
  let end = i + 1;
  while (end < lines.length && !lines[end].isBlank && !isStart(lines, end) && !marker(lines[end]) && !table(lines, end)) end++;
  return [{ kind: "paragraph", content: trim(joined(lines.slice(i, end))) }, end];
}

function trim(line) {
  return line.slice(line.indent, line.text.trimEnd().length);
}

export function joined(lines) {
  const at = [];
  for (const [i, line] of lines.entries()) {
    if (i) at.push((at.at(-1) ?? -1) + 1);
    for (const place of line.at) at.push(place);
  }
  return new Stretch(lines.map((line) => line.text).join("\n"), at);
}

