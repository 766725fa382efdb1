// Text from the cluster as it may be shown: bounded, and without characters that hide or reorder others.

// Controls but tab and line feed, soft hyphen, zero-width and bidirectional controls, line separators, tags, and the BOM.
const hidden =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|[\ud800-\udfff]/gu;

function code(character: string): string {
  return `⟨U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, '0')}⟩`;
}

export const longest = 600;

export function shown(text: unknown, most = longest): string {
  if (text === undefined || text === null) return '';
  const whole = typeof text === 'string' ? text : typeof text === 'number' || typeof text === 'boolean' ? String(text) : '';
  const cut = whole.length > most ? `${Array.from(whole.slice(0, most)).join('')}…` : whole;
  return cut.replace(hidden, code);
}
