// An editor for YAML. It is in a shadow tree, where CodeMirror uses constructed style sheets: inline ones are refused by
// the Content-Security-Policy.
import { useEffect, useRef, type ReactElement } from 'react';
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { yaml } from '@codemirror/lang-yaml';
import { bracketMatching, defaultHighlightStyle, HighlightStyle, indentOnInput, syntaxHighlighting } from '@codemirror/language';
import { search, searchKeymap } from '@codemirror/search';
import { Compartment, EditorState } from '@codemirror/state';
import { drawSelection, EditorView, highlightActiveLine, highlightSpecialChars, keymap, lineNumbers } from '@codemirror/view';
import { tags } from '@lezer/highlight';

const darkColors = HighlightStyle.define([
  { tag: tags.definition(tags.propertyName), color: '#92c5f9' },
  { tag: tags.propertyName, color: '#92c5f9' },
  { tag: [tags.string, tags.content], color: '#e0e0e0' },
  { tag: tags.comment, color: '#a3a3a3' },
  { tag: [tags.keyword, tags.bool, tags.number], color: '#f8ae54' },
]);

function look(dark: boolean): EditorViewTheme {
  const theme = EditorView.theme(
    {
      '&': { height: '60vh', fontSize: '14px', color: dark ? '#e0e0e0' : '#151515', backgroundColor: dark ? '#1f1f1f' : '#ffffff' },
      '.cm-gutters': { color: dark ? '#a3a3a3' : '#4d4d4d', backgroundColor: dark ? '#292929' : '#f2f2f2' },
      '.cm-activeLine': { backgroundColor: dark ? '#ffffff0d' : '#0000000a' },
      '.cm-scroller': { fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace' },
      '.cm-specialChar': { color: dark ? '#ff7674' : '#b1380b' },
    },
    { dark },
  );
  return [theme, syntaxHighlighting(dark ? darkColors : defaultHighlightStyle)];
}

type EditorViewTheme = ReturnType<typeof syntaxHighlighting>[] | [ReturnType<typeof EditorView.theme>, ReturnType<typeof syntaxHighlighting>];

const isDark = (): boolean => document.documentElement.classList.contains('pf-v6-theme-dark');

interface Props {
  label: string;
  // The first text; a new key shows another.
  text: string;
  readOnly?: boolean;
  onChange: (text: string) => void;
}

// Tab indents until Esc is pressed, which CodeMirror provides for: a keyboard can always leave.
export default function Editor({ label, text, readOnly = false, onChange }: Props): ReactElement {
  const host = useRef<HTMLDivElement>(null);
  const first = useRef(text);
  const changed = useRef(onChange);
  useEffect(() => {
    changed.current = onChange;
  });
  useEffect(() => {
    const element = host.current;
    if (!element) return undefined;
    const root = element.shadowRoot ?? element.attachShadow({ mode: 'open' });
    const colors = new Compartment();
    const view = new EditorView({
      root,
      parent: root,
      state: EditorState.create({
        doc: first.current,
        extensions: [
          lineNumbers(), highlightSpecialChars({ addSpecialChars: /[\u061c\u2066-\u2069\u2028-\u202f\u2060-\u2065]/g }), history(), drawSelection(), indentOnInput(), bracketMatching(), highlightActiveLine(),
          search({ top: true }), yaml(), keymap.of([...defaultKeymap, ...historyKeymap, ...searchKeymap, indentWithTab]),
          EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }), EditorState.readOnly.of(readOnly),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) changed.current(update.state.doc.toString());
          }),
          colors.of(look(isDark())),
        ],
      }),
    });
    const theme = new MutationObserver(() => {
      view.dispatch({ effects: colors.reconfigure(look(isDark())) });
    });
    theme.observe(document.documentElement, { attributeFilter: ['class'] });
    return () => {
      theme.disconnect();
      view.destroy();
    };
  }, [label, readOnly]);
  return <div ref={host} className="dd-editor" />;
}
