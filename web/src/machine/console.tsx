// The serial console.
import '@xterm/xterm/css/xterm.css';
import { useEffect, useRef, useState, type ReactElement } from 'react';
import { Button } from '@patternfly/react-core';
import { FitAddon } from '@xterm/addon-fit';
import { Terminal, type ITheme } from '@xterm/xterm';
import { subresourceGroup } from '../kube/paths';
import { useRights } from '../kube/userights';
import { denied } from '../parts/basics';
import { t } from '../text/en';
import { documentFor, whileOpening } from './cspstyle';
import type { Machine } from './page';
import { StreamFrame } from './streamframe';
import { leaves, openStream, sendBounded, type StreamState } from './stream';

const theme: ITheme = { background: '#151515', foreground: '#e0e0e0', cursor: '#ffffff' };

interface Props {
  namespace: string;
  name: string;
  onState: (state: StreamState) => void;
  leave: () => void;
}

// Links from a guest are not followed.
const noLinks = { activate: () => undefined };

function open(host: HTMLElement, props: Props): () => void {
  const terminal = new Terminal({
    documentOverride: documentFor(document), screenReaderMode: true, scrollback: 5000, fontSize: 14, theme, linkHandler: noLinks,
    fontFamily: 'ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace',
    cursorBlink: !matchMedia('(prefers-reduced-motion: reduce)').matches,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  whileOpening(document, () => {
    terminal.open(host);
  });
  fit.fit();
  terminal.textarea?.setAttribute('aria-label', t.console.label);
  terminal.attachCustomKeyEventHandler((event) => {
    if (!leaves(event)) return true;
    event.preventDefault();
    if (event.type === 'keydown') props.leave();
    return false;
  });
  const socket = openStream(props.namespace, props.name, 'console');
  let opened = false;
  props.onState('connecting');
  socket.onopen = () => {
    opened = true;
    props.onState('connected');
    terminal.focus();
  };
  socket.onmessage = (message: MessageEvent<ArrayBuffer>) => {
    terminal.write(new Uint8Array(message.data));
  };
  socket.onclose = () => {
    props.onState(opened ? 'ended' : 'refused');
  };
  const encoder = new TextEncoder();
  const send = (bytes: Uint8Array<ArrayBuffer>): void => {
    sendBounded(socket, bytes);
  };
  terminal.onData((text) => {
    send(encoder.encode(text));
  });
  terminal.onBinary((text) => {
    send(Uint8Array.from(text, (c) => c.charCodeAt(0) & 255));
  });
  const observer = new ResizeObserver(() => {
    fit.fit();
  });
  observer.observe(host);
  return () => {
    observer.disconnect();
    socket.onclose = null;
    socket.close();
    terminal.dispose();
  };
}

function TerminalView(props: Props): ReactElement {
  const host = useRef<HTMLDivElement>(null);
  const { namespace, name, onState, leave } = props;
  useEffect(() => {
    if (!host.current) return undefined;
    return open(host.current, { namespace, name, onState, leave });
  }, [namespace, name, onState, leave]);
  return <div ref={host} className="dd-terminal" />;
}

export function ConsoleTab({ machine }: { machine: Machine }): ReactElement {
  const may = useRights(machine.namespace);
  const [state, setState] = useState<StreamState>('connecting');
  const [attempt, setAttempt] = useState(0);
  const after = useRef<HTMLButtonElement>(null);
  const [leave] = useState(() => () => after.current?.focus());
  return (
    <StreamFrame
      machine={machine} verb="console" state={state} texts={t.console} again={() => {
        setAttempt(attempt + 1);
      }}
      missing={denied(may, { verb: 'get', group: subresourceGroup, resource: 'virtualmachineinstances/console' })}
      without={machine.vmi?.spec.domain?.devices?.autoattachSerialConsole === false}
      tools={<Button ref={after} size="sm" variant="secondary" onClick={() => {
        setAttempt(attempt + 1);
      }}>{t.console.reconnect}</Button>}
    >
      <TerminalView
        key={`${machine.vmi?.metadata.uid ?? ''}/${String(attempt)}`} namespace={machine.namespace} name={machine.name} onState={setState} leave={leave}
      />
    </StreamFrame>
  );
}
