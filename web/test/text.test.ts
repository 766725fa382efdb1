import assert from 'node:assert/strict';
import { test } from 'node:test';
import { longest, shown } from '../src/text/shown';

test('controls and bidirectional characters are made visible', () => {
  assert.equal(shown('a\u202eb'), 'a⟨U+202E⟩b');
  assert.equal(shown('a\u0000\u001b[31m'), 'a⟨U+0000⟩⟨U+001B⟩[31m');
  assert.equal(shown('x\u200by\ufeff\u2066\u061c'), 'x⟨U+200B⟩y⟨U+FEFF⟩⟨U+2066⟩⟨U+061C⟩');
  assert.equal(shown('\u{e0041}'), '⟨U+E0041⟩');
  assert.equal(shown('\ud800'), '⟨U+D800⟩');
});

test('ordinary text is left unchanged', () => {
  for (const text of ['plain', 'Ärger, 東京, 🙂', 'two\nlines\tand a tab', '<b>&amp;</b>']) assert.equal(shown(text), text);
});

test('long text is cut', () => {
  assert.equal(shown('x'.repeat(longest + 1)), `${'x'.repeat(longest)}…`);
  assert.equal(shown('abcdef', 3), 'abc…');
});

test('values that are no text show nothing of themselves', () => {
  assert.deepEqual([shown(undefined), shown(null), shown({ a: 1 }), shown(5), shown(false)], ['', '', '', '5', 'false']);
});
