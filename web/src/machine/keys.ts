// Keys for a guest's screen, as X11 keysyms.

export interface Key {
  keysym: number;
  code: string;
}

const key = (keysym: number, code: string): Key => ({ keysym, code });

const control = key(0xffe3, 'ControlLeft');
const alt = key(0xffe9, 'AltLeft');
const functionKey = (n: number): Key => key(0xffbd + n, `F${String(n)}`);

// Combinations that browsers or desktops keep for themselves.
export const combinations: readonly { name: string; keys: readonly Key[] }[] = [
  { name: 'Ctrl+Alt+Del', keys: [control, alt, key(0xffff, 'Delete')] },
  { name: 'Ctrl+Alt+Backspace', keys: [control, alt, key(0xff08, 'Backspace')] },
  ...[1, 2, 3, 4, 5, 6, 7].map((n) => ({ name: `Ctrl+Alt+F${String(n)}`, keys: [control, alt, functionKey(n)] })),
  { name: 'Alt+Tab', keys: [alt, key(0xff09, 'Tab')] },
  { name: 'Ctrl+]', keys: [control, key(0x5d, 'BracketRight')] },
  { name: 'Super', keys: [key(0xffeb, 'MetaLeft')] },
  { name: 'Esc', keys: [key(0xff1b, 'Escape')] },
];

// pressed lists the presses and releases of keys that are held together.
export function pressed(keys: readonly Key[]): [Key, boolean][] {
  return [...keys.map((k): [Key, boolean] => [k, true]), ...[...keys].reverse().map((k): [Key, boolean] => [k, false])];
}

// keysymOf returns the keysym of a character: Latin-1 is itself, the rest is Unicode with a mark.
export function keysymOf(character: string): number {
  const code = character.codePointAt(0) ?? 0;
  if (character === '\n' || character === '\r') return 0xff0d;
  if (character === '\t') return 0xff09;
  return code < 0x100 ? code : 0x1000000 + code;
}
