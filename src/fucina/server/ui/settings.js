// What the user set, kept in this browser: texts as typed, and what they mean for a request.

const KEY = "fucina.settings";
const FIELDS = ["system", "temperature", "top_p", "max_tokens", "seed", "schema"];

export function load() {
  let stored = {};
  try {
    stored = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    // unreadable settings are no settings
  }
  const settings = { origins: stored.origins !== false };
  for (const field of FIELDS) settings[field] = typeof stored[field] === "string" ? stored[field] : "";
  return settings;
}

export function save(settings) {
  localStorage.setItem(KEY, JSON.stringify(settings));
}

// The fields of a request that the settings ask for; throws Error naming the first that cannot be.
export function wanted(settings) {
  const fields = {};
  number(fields, settings, "temperature", "The temperature is a number from 0 to 1000", (n) => n >= 0 && n <= 1000);
  number(fields, settings, "top_p", "Top-p is a number above 0, 1 at most", (n) => n > 0 && n <= 1);
  number(fields, settings, "max_tokens", "The most tokens are a whole number from 1", (n) => Number.isSafeInteger(n) && n >= 1);
  number(fields, settings, "seed", "The seed is a whole number", Number.isSafeInteger);
  if (settings.schema.trim()) {
    fields.response_format = { type: "json_schema", json_schema: { name: "answer", schema: schema(settings.schema) } };
  }
  return fields;
}

function number(fields, settings, field, rule, fits) {
  const text = settings[field].trim().replace(",", ".");
  if (!text) return;
  const value = Number(text);
  if (!fits(value)) throw new Error(`${rule}, not “${text}”.`);
  fields[field] = value;
}

function schema(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw new Error(`The schema is no JSON: ${error.message}.`);
  }
  if (value === null || typeof value !== "object" || Array.isArray(value)) throw new Error("The schema is no JSON object.");
  return value;
}
